#include "tensorferry/wire/descriptor.h"

#include <limits>
#include <string>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rapidcheck/gtest.h"
#include "tensorferry/base/error.h"
#include "tensorferry/wire/bytes.h"
#include "tensorferry/wire/descriptor_testing.h"

namespace tensorferry::wire {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr size_t kVersionAt = 6;
constexpr size_t kFlagsAt = 7;
constexpr size_t kTotalAt = 8;
constexpr size_t kWaysAt = 10;
constexpr size_t kPaddingAt = 11;
constexpr size_t kGenerationAt = 36;
constexpr size_t kChecksumAt = 76;
constexpr size_t kFirstWayAt = 84;

SocketAddress Address(std::string_view text) { return *SocketAddress::Parse(text); }

Descriptor Full() {
  Descriptor d;
  d.instance.fill(0x11);
  d.lease = {.id = 5, .generation = 7, .token = {}};
  d.lease.token.fill(0x22);
  d.key = -2;
  d.nbytes = 1204224;
  d.checksum = 0x0102030405060708;
  d.wants_done = true;
  BootId boot;
  boot.fill(0x33);
  d.ways.emplace_back(LocalWay{.boot_id = boot, .socket_path = "/run/gw.sock"});
  d.ways.push_back(
      NetWay{.kind = NetWay::Kind::kTcp,
             .addresses = {Address("10.0.0.5:18515"), Address("[2001:db8::7]:18515")}});
  d.ways.emplace_back(NetWay{.kind = NetWay::Kind::kUcx, .addresses = {Address("10.0.0.5:18516")}});
  return d;
}

Descriptor Small() {
  Descriptor d;
  d.lease.generation = 1;
  d.ways.emplace_back(NetWay{.kind = NetWay::Kind::kTcp, .addresses = {Address("127.0.0.1:1")}});
  return d;
}

std::string Encode(const Descriptor& d) {
  auto bytes = EncodeDescriptor(d);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return bytes.value_or("");
}

absl::StatusOr<Descriptor> Decode(const std::string& bytes) {
  return DecodeDescriptor(AsBytes(bytes));
}

// Bytes with one field changed and the check made to agree, so that the field itself is judged.
std::string With(std::string bytes, size_t at, std::string_view value) {
  return Reseal(bytes.replace(at, value.size(), value));
}

TEST(DescriptorTest, GoldenBytes) {
  const std::string golden =
      "544645525259"                      // TFERRY
      "01"                                // version
      "03"                                // checksum, wants done
      "a400"                              // 164 bytes
      "03"                                // ways
      "00"                                //
      "11111111111111111111111111111111"  // instance
      "0500000000000000"                  // lease
      "0700000000000000"                  // generation
      "22222222222222222222222222222222"  // token
      "feffffffffffffff"                  // key
      "0060120000000000"                  // nbytes
      "0807060504030201"                  // checksum
      "01001c00"                          // local, 28 bytes
      "33333333333333333333333333333333"  // boot id
      "2f72756e2f67772e736f636b"          // path
      "02001c00"                          // tcp, 28 bytes
      "04005348"                          // IPv4, port 18515
      "0a000005"                          //
      "06005348"                          // IPv6, port 18515
      "20010db8000000000000000000000007"  //
      "03000800"                          // ucx, 8 bytes
      "04005448"                          // IPv4, port 18516
      "0a000005"                          //
      "96dca7b1";                         // check
  EXPECT_EQ(absl::BytesToHexString(Encode(Full())), golden);
  const auto decoded = Decode(absl::HexStringToBytes(golden));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, Full());
}

TEST(DescriptorTest, KeepsTheGatewaysOrderOfWays) {
  Descriptor d = Full();
  std::swap(d.ways[0], d.ways[2]);
  EXPECT_EQ(*Decode(Encode(d)), d);
  EXPECT_NE(Encode(d), Encode(Full()));
}

TEST(DescriptorTest, EveryFlippedBitIsRefused) {
  for (const Descriptor& d : {Full(), Small()}) {
    const std::string good = Encode(d);
    for (size_t i = 0; i < good.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string bytes = good;
        bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
        Reason expected = Reason::kBadDescriptor;
        if (i == kVersionAt && bytes[i] != 0) expected = Reason::kUnknownVersion;
        if (i == kTotalAt || i == kTotalAt + 1) {
          const auto total = LoadLe<uint16_t>(AsBytes(bytes).data() + kTotalAt);
          if (total > good.size() && total <= kMaxDescriptorBytes) expected = Reason::kTooShort;
        }
        EXPECT_EQ(ReasonNameOf(Decode(bytes).status()), ReasonName(expected)) << i << "." << bit;
      }
    }
  }
}

TEST(DescriptorTest, EveryReplacedByteIsRefused) {
  const std::string good = Encode(Full());
  for (size_t i = 0; i < good.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(value);
      EXPECT_EQ(Decode(bytes).ok(), bytes == good) << i << " = " << value;
    }
  }
}

TEST(DescriptorTest, EveryTruncationIsTooShortAndEveryExtensionIsBad) {
  const std::string good = Encode(Full());
  for (size_t n = 0; n < good.size(); ++n) {
    EXPECT_EQ(ReasonOf(Decode(good.substr(0, n)).status()), Reason::kTooShort) << n;
  }
  EXPECT_EQ(ReasonOf(Decode(good + '\0').status()), Reason::kBadDescriptor);
  EXPECT_EQ(ReasonOf(Decode(good + good).status()), Reason::kBadDescriptor);
}

TEST(DescriptorTest, ANewerVersionIsNamedWhateverFollows) {
  for (const std::string& rest : {std::string(), std::string("anything"), std::string(3000, 'x')}) {
    const auto d = Decode("TFERRY\x02" + rest);
    EXPECT_EQ(ReasonOf(d.status()), Reason::kUnknownVersion);
    EXPECT_THAT(std::string(d.status().message()),
                HasSubstr("version 2, this side reads version 1"));
  }
}

TEST(DescriptorTest, ForeignBytesAreBad) {
  for (const std::string& bytes : {std::string("SMGRDMA1"), std::string("tferry\x01"),
                                   std::string(200, '\0'), std::string("T\0", 2)}) {
    EXPECT_EQ(ReasonOf(Decode(bytes).status()), Reason::kBadDescriptor) << bytes;
  }
}

TEST(DescriptorTest, SkipsWaysOfANewerGateway) {
  Descriptor d = Full();
  std::string bytes = Encode(d);
  bytes[kFirstWayAt] = 5;  // the local way becomes one of an unknown kind
  auto decoded = Decode(Reseal(bytes));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  d.ways.erase(d.ways.begin());
  EXPECT_EQ(*decoded, d);

  bytes = Encode(Small());
  bytes[kFirstWayAt] = 0;
  decoded = Decode(Reseal(bytes));
  ASSERT_TRUE(decoded.ok()) << "no known way is for the puller to judge: " << decoded.status();
  EXPECT_TRUE(decoded->ways.empty());
}

TEST(DescriptorTest, AWayThatReadersMayFetchByThemselvesIsTwoOnTheWire) {
  Descriptor d = Full();
  const size_t plain = Encode(d).size();
  std::get<NetWay>(d.ways[2]).one_sided = true;
  const std::string bytes = Encode(d);
  EXPECT_EQ(bytes.size(), plain + 4);
  EXPECT_EQ(*Decode(bytes), d);
  EXPECT_THAT(DescriptorText(d), HasSubstr("way         ucx 10.0.0.5:18516 (and get)\n"));

  const size_t get_at = bytes.size() - 8;
  const auto wrong = [](const std::string& changed) {
    return ReasonOf(Decode(Reseal(changed)).status());
  };
  std::string changed = bytes;
  changed[get_at] = 5;  // an older worker knows it as little as this one knows 5
  std::get<NetWay>(d.ways[2]).one_sided = false;
  EXPECT_EQ(*Decode(Reseal(changed)), d);
  changed = bytes;
  changed[get_at - 12] = 5;  // the ucx way goes, and before it is one over tcp
  EXPECT_EQ(wrong(changed), Reason::kBadDescriptor);
  changed[kFirstWayAt] = 4;
  EXPECT_EQ(wrong(changed), Reason::kBadDescriptor);
  changed = bytes;
  changed[get_at + 2] = 4;  // its body would be the check
  EXPECT_EQ(wrong(changed), Reason::kBadDescriptor);
}

// What a check that agrees does not make right.
TEST(DescriptorTest, JudgesEveryFieldBehindTheCheck) {
  const std::string full = Encode(Full());
  const std::string small = Encode(Small());
  const struct {
    std::string bytes;
    std::string_view why;
  } table[] = {
      {With(full, kFlagsAt, "\x07"), "flags 0x7"},
      {With(full, kFlagsAt, "\x02"), "says that it has none"},
      {With(full, kWaysAt, std::string(1, '\0')), "0 ways"},
      {With(full, kWaysAt, "\x09"), "9 ways"},
      {With(full, kWaysAt, "\x02"), "12 bytes behind the last way"},
      {With(full, kWaysAt, "\x04"), "a way ends early"},
      {With(full, kPaddingAt, "\x01"), "padding"},
      {With(full, kGenerationAt, std::string(8, '\0')), "generation 0"},
      {With(small, kChecksumAt, "\x01"), "says that it has none"},
      {With(small, kFirstWayAt + 1, "\x01"), "padding of a way"},
      {With(small, kFirstWayAt + 2, "\xff\xff"), "a way ends early"},
      {With(small, kFirstWayAt + 2, std::string(2, '\0')), "0 tcp addresses"},
      {With(small, kFirstWayAt + 2, std::string("\x07\0", 2)), "address of the tcp way ends early"},
      {With(small, kFirstWayAt + 4, "\x06"), "address of the tcp way ends early"},
      {With(small, kFirstWayAt + 4, "\x05"), "address family 5"},
      {With(small, kFirstWayAt + 5, "\x01"), "padding of an address"},
      {With(small, kFirstWayAt + 6, std::string(2, '\0')), "port 0"},
      {With(small, kFirstWayAt + 8, std::string(4, '\0')), "wildcard"},
      {With(full, kFirstWayAt + 20, "x"), "not absolute"},
      {With(full, kFirstWayAt + 22, std::string(1, '\0')), "holds a NUL"},
      {With(full, kFirstWayAt + 2, std::string("\x0f\0", 2)), "the local way ends early"},
      {With(full, kFirstWayAt + 2, std::string("\x10\0", 2)), "socket path of 0 bytes"},
      {Reseal(full.substr(0, 87)), "says that it has 87 bytes"},
      {Reseal(full + std::string(2000, '\0')), "says that it has 2164 bytes"},
  };
  for (const auto& row : table) {
    const auto d = Decode(row.bytes);
    const auto reason = ReasonOf(d.status());
    EXPECT_TRUE(reason == Reason::kBadDescriptor || reason == Reason::kBadAddress) << row.why;
    EXPECT_THAT(std::string(d.status().message()), HasSubstr(std::string(row.why)));
  }
}

TEST(EncodeDescriptorTest, RefusesWhatNoDescriptorHolds) {
  const auto refused = [](auto change) {
    Descriptor d = Full();
    change(&d);
    return ReasonOf(EncodeDescriptor(d).status());
  };
  EXPECT_EQ(refused([](Descriptor* d) { d->lease.generation = 0; }), Reason::kBadDescriptor);
  EXPECT_EQ(refused([](Descriptor* d) { d->ways.clear(); }), Reason::kBadDescriptor);
  EXPECT_EQ(refused([](Descriptor* d) { d->ways.resize(9, d->ways[0]); }), Reason::kBadDescriptor);
  const auto path = [&](std::string p) {
    return refused([&](Descriptor* d) { d->ways[0] = LocalWay{.boot_id = {}, .socket_path = p}; });
  };
  EXPECT_EQ(path(""), Reason::kBadDescriptor);
  EXPECT_EQ(path("relative"), Reason::kBadDescriptor);
  EXPECT_EQ(path(std::string("/a\0b", 4)), Reason::kBadDescriptor);
  EXPECT_EQ(path("/" + std::string(107, 'a')), Reason::kBadDescriptor);
  EXPECT_EQ(path("/" + std::string(106, 'a')), std::nullopt);
  const auto addresses = [&](std::vector<SocketAddress> a) {
    return refused(
        [&](Descriptor* d) { d->ways[0] = NetWay{.kind = NetWay::Kind::kTcp, .addresses = a}; });
  };
  EXPECT_EQ(addresses({}), Reason::kBadDescriptor);
  EXPECT_EQ(addresses(std::vector(9, Address("10.0.0.5:1"))), Reason::kBadDescriptor);
  EXPECT_EQ(addresses({Address("0.0.0.0:1")}), Reason::kBadAddress);
  EXPECT_EQ(addresses({Address("10.0.0.5:0")}), Reason::kBadAddress);
  EXPECT_EQ(refused([](Descriptor* d) {
              d->ways[0] = NetWay{.kind = NetWay::Kind::kTcp,
                                  .addresses = {Address("10.0.0.5:1")},
                                  .one_sided = true};
            }),
            Reason::kBadDescriptor);
  EXPECT_EQ(refused([](Descriptor* d) {
              d->ways.assign(5, NetWay{.kind = NetWay::Kind::kUcx,
                                       .addresses = {Address("10.0.0.5:1")},
                                       .one_sided = true});
            }),
            Reason::kBadDescriptor);
}

TEST(EncodeDescriptorTest, TheLargestOneFits) {
  Descriptor d = Small();
  d.ways.assign(8, NetWay{.kind = NetWay::Kind::kTcp,
                          .addresses = std::vector(8, Address("[2001:db8::7]:1"))});
  const std::string bytes = Encode(d);
  EXPECT_LE(bytes.size(), kMaxDescriptorBytes);
  EXPECT_EQ(*Decode(bytes), d);
}

TEST(DescriptorTextTest, HasEveryFieldButTheToken) {
  EXPECT_EQ(DescriptorText(Full()),
            "tensorferry descriptor, version 1\n"
            "instance    11111111111111111111111111111111\n"
            "lease       5\n"
            "generation  7\n"
            "token       (redacted)\n"
            "key         -2\n"
            "nbytes      1204224\n"
            "checksum    xxh3 0102030405060708\n"
            "wants_done  yes\n"
            "way         local /run/gw.sock (boot 33333333-3333-3333-3333-333333333333)\n"
            "way         tcp 10.0.0.5:18515, [2001:db8::7]:18515\n"
            "way         ucx 10.0.0.5:18516\n");
}

TEST(DescriptorTextTest, EscapesWhatATerminalWouldObey) {
  Descriptor d = Full();
  d.ways[0] = LocalWay{.boot_id = {}, .socket_path = "/run/\x1b[2J\n"};
  const std::string text = DescriptorText(d);
  EXPECT_THAT(text, HasSubstr("/run/\\x1b[2J\\n"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

SocketAddress ArbitraryAddress() {
  return *rc::gen::suchThat(
      rc::gen::map(rc::gen::pair(rc::gen::arbitrary<std::array<uint8_t, 16>>(),
                                 rc::gen::pair(rc::gen::arbitrary<bool>(),
                                               rc::gen::inRange<uint16_t>(1, 65535))),
                   [](const auto& parts) {
                     return *SocketAddress::FromBytes(
                         std::span(parts.first).first(parts.second.first ? 16 : 4),
                         parts.second.second);
                   }),
      [](const SocketAddress& a) { return a.CheckDialable().ok(); });
}

Way ArbitraryWay() {
  if (*rc::gen::arbitrary<bool>()) {
    const auto path =
        *rc::gen::resize(106, rc::gen::container<std::string>(rc::gen::suchThat(
                                  rc::gen::arbitrary<char>(), [](char c) { return c != 0; })));
    return LocalWay{.boot_id = *rc::gen::arbitrary<BootId>(), .socket_path = "/" + path};
  }
  NetWay way;
  way.kind = *rc::gen::element(NetWay::Kind::kTcp, NetWay::Kind::kUcx);
  way.one_sided = way.kind == NetWay::Kind::kUcx && *rc::gen::arbitrary<bool>();
  const int n = *rc::gen::inRange(1, 9);
  for (int i = 0; i < n; ++i) way.addresses.push_back(ArbitraryAddress());
  return way;
}

Descriptor ArbitraryDescriptor() {
  Descriptor d;
  d.instance = *rc::gen::arbitrary<InstanceId>();
  d.lease.id = *rc::gen::arbitrary<uint64_t>();
  d.lease.generation = *rc::gen::nonZero<uint64_t>();
  d.lease.token = *rc::gen::arbitrary<Token>();
  d.key = *rc::gen::arbitrary<int64_t>();
  d.nbytes = *rc::gen::arbitrary<uint64_t>();
  if (*rc::gen::arbitrary<bool>()) d.checksum = *rc::gen::arbitrary<uint64_t>();
  d.wants_done = *rc::gen::arbitrary<bool>();
  // At most 8 on the wire, where one may be two.
  const int n = *rc::gen::inRange(1, 5);
  for (int i = 0; i < n; ++i) d.ways.push_back(ArbitraryWay());
  return d;
}

RC_GTEST_PROP(DescriptorProperty, EncodingLeadsBack, ()) {
  const Descriptor d = ArbitraryDescriptor();
  const auto bytes = EncodeDescriptor(d);
  RC_ASSERT(bytes.ok());
  const auto back = Decode(*bytes);
  RC_ASSERT(back.ok());
  RC_ASSERT(*back == d);
}

RC_GTEST_PROP(DescriptorProperty, AFlippedBitIsRefused, ()) {
  const auto bytes = EncodeDescriptor(ArbitraryDescriptor());
  RC_ASSERT(bytes.ok());
  std::string flipped = *bytes;
  char& c = flipped[*rc::gen::inRange<size_t>(0, flipped.size())];
  c = static_cast<char>(c ^ (1 << *rc::gen::inRange(0, 8)));
  RC_ASSERT(!Decode(flipped).ok());
}

}  // namespace
}  // namespace tensorferry::wire
