// docs/wire.md says what the code does.
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/wire/bytes.h"
#include "tensorferry/wire/descriptor.h"
#include "tensorferry/wire/doc_testing.h"
#include "tensorferry/wire/frame.h"
#include "tensorferry/wire/local_messages.h"
#include "tensorferry/wire/notification.h"
#include "tensorferry/wire/smg_descriptor.h"
#include "tensorferry/wire/tcp_messages.h"
#include "tensorferry/wire/ucx_location.h"

namespace tensorferry::wire {
namespace {

using ::testing::SizeIs;

std::string Hex(std::string_view bytes) { return absl::BytesToHexString(AbslView(bytes)); }

template <size_t N>
std::string Hex(const std::array<std::byte, N>& bytes) {
  return Hex(AsText(bytes));
}

template <size_t N>
std::span<const std::byte, N> Fixed(const std::string& bytes) {
  EXPECT_EQ(bytes.size(), N);
  return std::span<const std::byte, N>(AsBytes(bytes));
}

InstanceId Instance() {
  InstanceId id;
  id.fill(0x11);
  return id;
}

LeaseRef Lease() {
  LeaseRef lease = {.id = 5, .generation = 7, .token = {}};
  lease.token.fill(0x22);
  return lease;
}

TEST(WireDocTest, RowsOfEveryTableFollowEachOther) {
  const WireDoc doc = ReadWireDoc();
  ASSERT_THAT(doc.tables, SizeIs(14));
  for (const DocTable& table : doc.tables) {
    uint64_t expected = 0;
    for (const DocRow& row : table) {
      uint64_t size = 0;
      EXPECT_EQ(row.offset, StrCat(expected));
      if (!absl::SimpleAtoi(row.size, &size)) break;
      expected += size;
    }
  }
}

TEST(WireDocTest, LinesOfEveryExampleAreTheRowsOfItsTable) {
  const WireDoc doc = ReadWireDoc();
  ASSERT_THAT(doc.examples, SizeIs(12));
  for (const auto& [name, example] : doc.examples) {
    SCOPED_TRACE(name);
    if (!example.table) {
      EXPECT_EQ(name, "notification");
      continue;
    }
    const DocTable& table = *example.table;
    size_t row = 0;
    for (uint64_t size; row < table.size() && absl::SimpleAtoi(table[row].size, &size); ++row) {
      ASSERT_LT(row, example.lines.size());
      EXPECT_EQ(example.lines[row].size(), size) << "line " << row;
    }
    if (row == table.size()) {
      EXPECT_THAT(example.lines, SizeIs(row));
    }
  }
}

TEST(WireDocTest, Descriptor) {
  Descriptor d;
  d.instance = Instance();
  d.lease = Lease();
  d.key = 42;
  d.nbytes = 1204224;
  d.wants_done = true;
  BootId boot;
  boot.fill(0x33);
  d.ways.emplace_back(LocalWay{.boot_id = boot, .socket_path = "/run/gw.sock"});
  d.ways.emplace_back(
      NetWay{.kind = NetWay::Kind::kTcp, .addresses = {*SocketAddress::Parse("10.0.0.5:18515")}});
  const std::string bytes = DocExample("descriptor");
  EXPECT_EQ(Hex(bytes), Hex(*EncodeDescriptor(d)));
  const auto decoded = DecodeDescriptor(AsBytes(bytes));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, d);
}

TEST(WireDocTest, SmgDescriptor) {
  const SmgDescriptor d = {
      .slot_addr = 0x7f5500001000, .gen = 1, .key = 42, .port = 18515, .host = "10.0.0.7"};
  const std::string bytes = DocExample("smg_descriptor");
  EXPECT_EQ(Hex(bytes), Hex(EncodeSmgDescriptor(d)));
  EXPECT_EQ(*ParseSmgDescriptor(AsBytes(bytes), std::nullopt), d);
}

TEST(WireDocTest, LegacyDescriptor) {
  const SmgDescriptor d = {
      .slot_addr = 0x2000, .gen = 5, .key = 42, .port = 18515, .host = "127.0.0.1", .legacy = true};
  EXPECT_EQ(*ParseSmgDescriptor(AsBytes(DocExample("legacy_descriptor")), 42), d);
}

TEST(WireDocTest, Frame) {
  const std::string bytes = DocExample("frame");
  EXPECT_EQ(bytes.substr(8, 5), "abcde");
  EXPECT_TRUE(CheckFrame(AsBytes(bytes), 5, 7).ok());
}

TEST(WireDocTest, Notification) { EXPECT_EQ(DocExample("notification"), EncodeNotification(-1)); }

TEST(WireDocTest, TcpRequest) {
  TcpRequest r;
  r.request = 9;
  r.instance = Instance();
  r.lease = Lease();
  r.length = 1204224;
  r.deadline_ms = 5000;
  const std::string bytes = DocExample("tcp_request");
  EXPECT_EQ(Hex(bytes), Hex(EncodeTcpRequest(r)));
  EXPECT_EQ(*DecodeTcpRequest(Fixed<kTcpRequestBytes>(bytes)), r);
}

TEST(WireDocTest, TcpAnswer) {
  const TcpAnswer a = {
      .status = static_cast<uint16_t>(Reason::kLeaseEnded), .request = 9, .length = 0};
  const std::string bytes = DocExample("tcp_answer");
  EXPECT_EQ(Hex(bytes), Hex(EncodeTcpAnswer(a)));
  EXPECT_EQ(*DecodeTcpAnswer(Fixed<kTcpAnswerBytes>(bytes)), a);
}

TEST(WireDocTest, UcxLocation) {
  const UcxLocation location = {
      .address = 0x7f5500000040, .nbytes = 1204224, .remote_key = std::vector<std::byte>(9)};
  const std::string bytes = DocExample("ucx_location");
  EXPECT_EQ(Hex(bytes), Hex(AsText(EncodeUcxLocation(location))));
  EXPECT_EQ(*DecodeUcxLocation(AsBytes(bytes)), location);
}

TEST(WireDocTest, LocalWelcome) {
  const LocalWelcome w = {.status = 0,
                          .instance = Instance(),
                          .arena_bytes = 1 << 30,
                          .table_entries = 32768,
                          .max_claim_bytes = 256 << 20};
  const std::string bytes = DocExample("local_welcome");
  EXPECT_EQ(Hex(bytes), Hex(EncodeLocalWelcome(w)));
  EXPECT_EQ(*DecodeLocalWelcome(AsBytes(bytes)), w);
}

TEST(WireDocTest, LocalRelease) {
  const LocalRelease r = {.lease = Lease()};
  const std::string bytes = DocExample("local_release");
  EXPECT_EQ(Hex(bytes), Hex(EncodeLocalRelease(r)));
  EXPECT_EQ(*DecodeLocalRelease(AsBytes(bytes)), r);
}

}  // namespace
}  // namespace tensorferry::wire
