#include "tensorferry/base/socket_owner.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>

#include "tensorferry/base/fd.h"
#include "tensorferry/base/temp_dir_testing.h"

namespace tensorferry {
namespace {

constexpr char kHead[] =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout\n";
constexpr char kTail[] = " 00000000:00000000 00:00000000 00000000 ";

std::optional<uint32_t> UidOf(std::string_view address) {
  return ListeningUid(*SocketAddress::Parse(address));
}

TEST(ListeningUid, FindsTheOwnerOfARealSocket) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(any);
  auto* address = reinterpret_cast<sockaddr*>(&any);
  ASSERT_EQ(::bind(fd.get(), address, size), 0);
  ASSERT_EQ(::getsockname(fd.get(), address, &size), 0);
  const std::string text = "127.0.0.1:" + std::to_string(ntohs(any.sin_port));
  EXPECT_EQ(UidOf(text), std::nullopt);  // bound, but not listening
  ASSERT_EQ(::listen(fd.get(), 1), 0);
  EXPECT_EQ(UidOf(text), ::geteuid());
  EXPECT_EQ(UidOf("127.0.0.2:" + std::to_string(ntohs(any.sin_port))), std::nullopt);
}

class ListeningUidTest : public testing::Test {
 protected:
  // One "LOCAL STATE UID" a line.
  void Put(const std::string& table, std::initializer_list<std::array<const char*, 3>> lines) {
    std::ofstream file(dir_ / table);
    file << kHead;
    int slot = 0;
    for (const auto& [local, state, uid] : lines) {
      file << "   " << slot++ << ": " << local << " 00000000:0000 " << state << kTail << uid
           << "        0 12345 1 0000000000000000 100 0 0 10 0\n";
    }
  }
  std::optional<uint32_t> UidOf(std::string_view address) const {
    return ListeningUid(*SocketAddress::Parse(address), dir_.path());
  }

  TempDir dir_;
};

TEST_F(ListeningUidTest, TheMostParticularListenerCounts) {
  Put("tcp", {{"00000000:C383", "0A", "1"}, {"0100007F:C383", "0A", "2"}});
  Put("tcp6", {{"00000000000000000000000000000000:C383", "0A", "3"},
               {"00000000000000000000000001000000:C384", "0A", "4"},
               {"0000000000000000FFFF00000200007F:C383", "0A", "5"},
               {"00000000000000000000000000000000:C385", "0A", "6"}});
  EXPECT_EQ(UidOf("127.0.0.1:50051"), 2u);
  EXPECT_EQ(UidOf("127.0.0.2:50051"), 5u);
  EXPECT_EQ(UidOf("127.0.0.3:50051"), 1u);
  EXPECT_EQ(UidOf("[::1]:50051"), 3u);
  EXPECT_EQ(UidOf("[::1]:50052"), 4u);
  EXPECT_EQ(UidOf("127.0.0.1:50052"), std::nullopt);
  EXPECT_EQ(UidOf("127.0.0.1:50053"), 6u);  // IPv6 sockets take IPv4 as well
}

TEST_F(ListeningUidTest, OnlyListenersCount) {
  Put("tcp", {{"0100007F:C383", "01", "1"}, {"0100007F:C383", "06", "0"}});
  EXPECT_EQ(UidOf("127.0.0.1:50051"), std::nullopt);
}

TEST_F(ListeningUidTest, AnotherHostsAddressIsNotLookedUpHere) {
  Put("tcp", {{"00000000:C383", "0A", "1"}});
  EXPECT_EQ(UidOf("192.0.2.7:50051"), std::nullopt);
  EXPECT_EQ(UidOf("[2001:db8::7]:50051"), std::nullopt);
}

TEST_F(ListeningUidTest, WhatCannotBeReadIsPassedOver) {
  EXPECT_EQ(UidOf("127.0.0.1:50051"), std::nullopt);
  Put("tcp", {{"0100007F", "0A", "1"},
              {"0100007G:C383", "0A", "1"},
              {"0100007F:1C383", "0A", "1"},
              {"0100007F:C383", "0A", "-1"},
              {"0100007F:C383", "0A", "4294967296"},
              {"7F:C383", "0A", "1"},
              {":C383", "0A", "1"},
              {"0100007F:C383", "0A", "9"}});
  std::ofstream(dir_ / "tcp6") << kHead << "\n\n 1: \n";
  EXPECT_EQ(UidOf("127.0.0.1:50051"), 9u);
}

}  // namespace
}  // namespace tensorferry
