#include "tensorferry/base/net.h"

#include <netinet/in.h>

#include <cerrno>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rapidcheck/gtest.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/fd.h"

namespace tensorferry {
namespace {

using ::testing::HasSubstr;

SocketAddress Address(std::string_view text) {
  auto address = SocketAddress::Parse(text);
  EXPECT_TRUE(address.ok()) << address.status();
  return address.value_or(SocketAddress());
}

TEST(SocketAddressTest, ParsesAndPrints) {
  for (const char* text :
       {"10.0.0.5:18515", "0.0.0.0:0", "255.255.255.255:65535", "[::1]:18515", "[::]:0",
        "[2001:db8::7]:1", "[fe80::1ff:fe23:4567:890a]:18516", "[::ffff:10.0.0.5]:80"}) {
    EXPECT_EQ(Address(text).ToString(), text);
  }
  EXPECT_EQ(Address("[0:0:0:0:0:0:0:1]:5").ToString(), "[::1]:5");
  EXPECT_EQ(Address("[::1]:18515").HostText(), "::1");
  EXPECT_EQ(Address("10.0.0.5:18515").HostText(), "10.0.0.5");
  EXPECT_EQ(Address("10.0.0.5:18515").port(), 18515);
  EXPECT_FALSE(Address("10.0.0.5:18515").is_v6());
  EXPECT_TRUE(Address("[::1]:18515").is_v6());
}

TEST(SocketAddressTest, RefusesWithTheTextAndAWayOut) {
  const struct {
    std::string text;
    std::string why;
  } table[] = {
      {"", "no port"},
      {"10.0.0.5", "no port"},
      {"10.0.0.5:", "port is not a number"},
      {"10.0.0.5:65536", "port is not a number"},
      {"10.0.0.5:99999999999999999999", "port is not a number"},
      {"10.0.0.5:-1", "port is not a number"},
      {"10.0.0.5:+1", "port is not a number"},
      {"10.0.0.5: 1", "port is not a number"},
      {"10.0.0.5:01", "port is not a number"},
      {"10.0.0.5:1x", "port is not a number"},
      {":80", "host is empty"},
      {"[]:80", "brackets"},
      {"localhost:80", "names are not resolved"},
      {"10.0.0:80", "names are not resolved"},
      {"10.0.0.256:80", "names are not resolved"},
      {"010.0.0.5:80", "names are not resolved"},
      {"10.0.0.5 :80", "names are not resolved"},
      {std::string("10.0.0.5\0:80", 12), "names are not resolved"},
      {std::string("[::1\0]:80", 9), "names are not resolved"},
      {"::1:80", "write [::1]:18515"},
      {"[10.0.0.5]:80", "write [::1]:18515"},
      {"[::1:80", "write [::1]:18515"},
      {"[::1]", "port is not a number"},
      {"[fe80::1%eth0]:80", "scope"},
      {"[1:2:3]:80", "names are not resolved"},
  };
  for (const auto& row : table) {
    const auto address = SocketAddress::Parse(row.text);
    EXPECT_EQ(ReasonOf(address.status()), Reason::kBadAddress) << row.text;
    EXPECT_THAT(std::string(address.status().message()), HasSubstr(row.why)) << row.text;
  }
}

TEST(SocketAddressTest, ParseHostTakesIpv6WithoutBrackets) {
  EXPECT_EQ(SocketAddress::ParseHost("::1", 5)->ToString(), "[::1]:5");
  EXPECT_EQ(SocketAddress::ParseHost("10.0.0.5", 5)->ToString(), "10.0.0.5:5");
  EXPECT_FALSE(SocketAddress::ParseHost("[::1]", 5).ok());
  EXPECT_FALSE(SocketAddress::ParseHost("", 5).ok());
}

TEST(SocketAddressTest, FromBytesTakesFourOrSixteen) {
  const std::vector<uint8_t> bytes(17, 1);
  for (size_t n = 0; n <= bytes.size(); ++n) {
    const auto address = SocketAddress::FromBytes(std::span(bytes).first(n), 80);
    EXPECT_EQ(address.ok(), n == 4 || n == 16) << n;
  }
}

TEST(SocketAddressTest, FromSockaddrRefusesOtherFamilies) {
  sockaddr_storage storage = {};
  storage.ss_family = AF_UNIX;
  EXPECT_EQ(ReasonOf(SocketAddress::FromSockaddr(storage).status()), Reason::kBadAddress);
}

TEST(SocketAddressTest, KnowsWildcardAndLoopback) {
  EXPECT_TRUE(Address("0.0.0.0:80").IsWildcard());
  EXPECT_TRUE(Address("[::]:80").IsWildcard());
  EXPECT_FALSE(Address("0.0.0.1:80").IsWildcard());
  EXPECT_TRUE(Address("127.9.9.9:80").IsLoopback());
  EXPECT_TRUE(Address("[::1]:80").IsLoopback());
  EXPECT_FALSE(Address("[::2]:80").IsLoopback());
  EXPECT_FALSE(Address("[100::1]:80").IsLoopback());
  EXPECT_FALSE(Address("128.0.0.1:80").IsLoopback());
}

TEST(SocketAddressTest, DialableMeansThatAnotherProcessCanUseIt) {
  for (const char* text : {"10.0.0.5:1", "127.0.0.1:65535", "[::1]:80", "[2001:db8::7]:80",
                           "223.255.255.255:80", "169.254.1.1:80"}) {
    EXPECT_TRUE(Address(text).CheckDialable().ok()) << text;
  }
  const struct {
    std::string_view text;
    std::string_view why;
  } table[] = {{"10.0.0.5:0", "port 0"},
               {"0.0.0.0:80", "wildcard"},
               {"[::]:80", "wildcard"},
               {"224.0.0.1:80", "multicast"},
               {"239.255.255.255:80", "multicast"},
               {"[ff02::1]:80", "multicast"},
               {"255.255.255.255:80", "broadcast"},
               {"[::ffff:10.0.0.5]:80", "IPv4-mapped"},
               {"[fe80::1]:80", "link-local"},
               {"[febf::1]:80", "link-local"}};
  for (const auto& row : table) {
    const absl::Status status = Address(row.text).CheckDialable();
    EXPECT_EQ(ReasonOf(status), Reason::kBadAddress) << row.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(row.why)));
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(row.text)));
  }
}

RC_GTEST_PROP(SocketAddressProperty, TextAndSockaddrLeadBack, (bool v6, uint16_t port)) {
  const auto bytes =
      *rc::gen::container<std::vector<uint8_t>>(v6 ? 16 : 4, rc::gen::arbitrary<uint8_t>());
  const SocketAddress address = *SocketAddress::FromBytes(bytes, port);
  RC_ASSERT(*SocketAddress::Parse(address.ToString()) == address);
  RC_ASSERT(*SocketAddress::ParseHost(address.HostText(), port) == address);
  sockaddr_storage storage;
  RC_ASSERT(address.ToSockaddr(&storage) == (v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in)));
  RC_ASSERT(*SocketAddress::FromSockaddr(storage) == address);
}

TEST(AllowListTest, MatchesNetworks) {
  const auto list = AllowList::Parse({"10.1.0.0/16", "192.168.7.9", "2001:db8:a000::/35", "::1"});
  ASSERT_TRUE(list.ok()) << list.status();
  for (const char* text : {"10.1.0.0:1", "10.1.255.255:1", "192.168.7.9:1", "[2001:db8:bfff::1]:1",
                           "[::1]:1", "[::ffff:10.1.2.3]:1"}) {
    EXPECT_TRUE(list->Allows(Address(text))) << text;
  }
  for (const char* text : {"10.0.255.255:1", "10.2.0.0:1", "192.168.7.8:1", "[2001:db8:c000::]:1",
                           "[::2]:1", "0.0.0.1:1", "[::ffff:10.2.0.0]:1", "[a01::]:1"}) {
    EXPECT_FALSE(list->Allows(Address(text))) << text;
  }
  EXPECT_EQ(list->ToString(), "10.1.0.0/16, 192.168.7.9/32, 2001:db8:a000::/35, ::1/128");
}

TEST(AllowListTest, EmptyAllowsNothingAndSlashZeroOneFamily) {
  EXPECT_FALSE(AllowList().Allows(Address("127.0.0.1:1")));
  EXPECT_EQ(AllowList().ToString(), "nothing");
  EXPECT_FALSE(AllowList::Parse({})->Allows(Address("127.0.0.1:1")));
  const auto v4 = *AllowList::Parse({"0.0.0.0/0"});
  EXPECT_TRUE(v4.Allows(Address("8.8.8.8:1")));
  EXPECT_FALSE(v4.Allows(Address("[::1]:1")));
  const auto v6 = *AllowList::Parse({"::/0"});
  EXPECT_TRUE(v6.Allows(Address("[2001:db8::7]:1")));
  EXPECT_FALSE(v6.Allows(Address("8.8.8.8:1")));
  EXPECT_FALSE(v6.Allows(Address("[::ffff:8.8.8.8]:1"))) << "it reaches an IPv4 host";
}

TEST(AllowListTest, LoopbackAllowsBothFamiliesOfThisHostOnly) {
  const AllowList list = AllowList::Loopback();
  EXPECT_TRUE(list.Allows(Address("127.255.0.1:1")));
  EXPECT_TRUE(list.Allows(Address("[::1]:1")));
  EXPECT_FALSE(list.Allows(Address("10.0.0.5:1")));
  EXPECT_FALSE(list.Allows(Address("[::]:1")));
  EXPECT_EQ(list.ToString(), "127.0.0.0/8, ::1/128");
}

TEST(AllowListTest, RefusesWithTheTextAndAWayOut) {
  const struct {
    std::string_view text;
    std::string_view why;
  } table[] = {{"", "10.0.0.0/8"},
               {"localhost", "10.0.0.0/8"},
               {"10.0.0.0/", "0 to 32"},
               {"10.0.0.0/33", "0 to 32"},
               {"10.0.0.0/-1", "0 to 32"},
               {"10.0.0.0/08", "0 to 32"},
               {"10.0.0.0/8/8", "0 to 32"},
               {"fd00::/129", "0 to 128"},
               {"10.0.0.5/8", "the network is 10.0.0.0/8"},
               {"fd00::1/8", "the network is fd00::/8"},
               {"::ffff:10.0.0.0/104", "IPv4-mapped"},
               {"10.0.0.5:80", "10.0.0.0/8"},
               {"fe80::1%eth0", "10.0.0.0/8"}};
  for (const auto& row : table) {
    const auto list = AllowList::Parse({"127.0.0.1", row.text});
    EXPECT_EQ(ReasonOf(list.status()), Reason::kBadAddress) << row.text;
    EXPECT_THAT(std::string(list.status().message()), HasSubstr(std::string(row.why))) << row.text;
    EXPECT_THAT(std::string(list.status().message()), HasSubstr(std::string(row.text)));
  }
}

TEST(AllowListTest, TakesWhatACommandLineGives) {
  const std::vector<std::string> networks = {"10.0.0.0/8"};
  EXPECT_TRUE(AllowList::Parse(networks)->Allows(Address("10.9.9.9:1")));
}

RC_GTEST_PROP(AllowListProperty, AllowsJustTheAddressesThatShareThePrefix,
              (uint32_t base, uint32_t other)) {
  const int prefix = *rc::gen::inRange(0, 33);
  const uint32_t mask = prefix == 0 ? 0 : ~uint32_t{0} << (32 - prefix);
  const auto address = [](uint32_t v) {
    const uint8_t bytes[4] = {static_cast<uint8_t>(v >> 24), static_cast<uint8_t>(v >> 16),
                              static_cast<uint8_t>(v >> 8), static_cast<uint8_t>(v)};
    return *SocketAddress::FromBytes(bytes, 0);
  };
  const std::string text = address(base & mask).HostText() + "/" + std::to_string(prefix);
  const AllowList list = *AllowList::Parse({text});
  RC_ASSERT(list.Allows(address(base)));
  RC_ASSERT(list.Allows(address(other)) == ((other & mask) == (base & mask)));
  const uint32_t near = base ^ (1u << *rc::gen::inRange(0, 32));
  RC_ASSERT(list.Allows(address(near)) == ((near & mask) == (base & mask)));
}

TEST(LocalAddressTowardsTest, IsTheAddressOfTheRouteAndSendsNothing) {
  UniqueFd listener(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage storage;
  socklen_t length = Address("127.0.0.1:0").ToSockaddr(&storage);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&storage), length), 0);
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&storage), &length), 0);
  const auto local = LocalAddressTowards(*SocketAddress::FromSockaddr(storage));
  ASSERT_TRUE(local.ok()) << local.status();
  EXPECT_EQ(local->ToString(), "127.0.0.1:0");
  char byte;
  EXPECT_EQ(::recv(listener.get(), &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST(LocalAddressTowardsTest, TakesAPeerWithoutAPort) {
  EXPECT_EQ(LocalAddressTowards(Address("127.0.0.1:0"))->ToString(), "127.0.0.1:0");
}

TEST(LocalAddressTowardsTest, NamesAPeerWithoutARoute) {
  const auto local = LocalAddressTowards(Address("255.255.255.255:80"));
  EXPECT_EQ(ReasonOf(local.status()), Reason::kUnreachable);
  EXPECT_THAT(std::string(local.status().message()), HasSubstr("255.255.255.255"));
}

}  // namespace
}  // namespace tensorferry
