#include "tensorferry/wire/smg_descriptor.h"

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rapidcheck/gtest.h"
#include "tensorferry/base/error.h"
#include "tensorferry/wire/bytes.h"

namespace tensorferry::wire {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMax64 = std::numeric_limits<uint64_t>::max();

SmgDescriptor Usable() {
  return {.slot_addr = 0x7f5500001000, .gen = 7, .key = 42, .port = 18515, .host = "10.0.0.7"};
}

nlohmann::json Vectors() {
  std::ifstream file(TENSORFERRY_SOURCE_DIR
                     "/tensorferry/wire/testdata/smg_descriptor_vectors.json");
  return nlohmann::json::parse(file);
}

// Recorded from SMG's own Python parser.
TEST(SmgDescriptorTest, ParsesAsSmgDoes) {
  const nlohmann::json vectors = Vectors();
  ASSERT_EQ(vectors.size(), 29u);
  for (const auto& vector : vectors) {
    SCOPED_TRACE(vector.at("name").get<std::string>());
    const std::string bytes = absl::HexStringToBytes(vector.at("hex").get<std::string>());
    std::optional<int64_t> key;
    if (!vector.at("explicit_key").is_null()) key = vector.at("explicit_key").get<int64_t>();
    const auto parsed = ParseSmgDescriptor(AsBytes(bytes), key);
    if (vector.contains("error")) {
      EXPECT_EQ(ReasonNameOf(parsed.status()), vector.at("error").get<std::string>());
      continue;
    }
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    const auto& expected = vector.at("descriptor");
    EXPECT_EQ(parsed->slot_addr, expected.at("slot_addr").get<uint64_t>());
    EXPECT_EQ(parsed->gen, expected.at("gen").get<uint64_t>());
    EXPECT_EQ(parsed->key, expected.at("key").get<int64_t>());
    EXPECT_EQ(parsed->port, expected.at("port").get<uint16_t>());
    EXPECT_EQ(parsed->host, expected.at("host").get<std::string>());
  }
}

TEST(SmgDescriptorTest, TheVectorsWithMagicEncodeBack) {
  int encoded = 0;
  for (const auto& vector : Vectors()) {
    const std::string bytes = absl::HexStringToBytes(vector.at("hex").get<std::string>());
    const auto parsed = ParseSmgDescriptor(AsBytes(bytes), std::nullopt);
    if (!parsed.ok()) continue;
    EXPECT_EQ(EncodeSmgDescriptor(*parsed), bytes) << vector.at("name");
    ++encoded;
  }
  EXPECT_EQ(encoded, 15);
}

TEST(SmgDescriptorTest, ErrorsNameWhatTheySaw) {
  const std::string bytes = EncodeSmgDescriptor(Usable());
  const auto message = [](const absl::StatusOr<SmgDescriptor>& d) {
    return std::string(d.status().message());
  };
  EXPECT_THAT(message(ParseSmgDescriptor(AsBytes(bytes), 43)),
              HasSubstr("for key 42, the request"));
  EXPECT_THAT(message(ParseSmgDescriptor(AsBytes(bytes).first(33), {})),
              HasSubstr("of 33 bytes: it has at least 34"));
  EXPECT_THAT(message(ParseSmgDescriptor(AsBytes(bytes + "\xff"), {})), HasSubstr("\\xff"));
  EXPECT_THAT(message(ParseSmgDescriptor(AsBytes("SMGRDMA2 and more"), {})), HasSubstr("SMGRDMA2"));
}

TEST(CheckUsableTest, AcceptsWhatCanBeDialled) {
  for (const char* host : {"10.0.0.7", "127.0.0.1", "2001:db8::7", "::1"}) {
    SmgDescriptor d = Usable();
    d.host = host;
    EXPECT_TRUE(CheckUsable(d, 1 << 20).ok()) << host;
  }
}

TEST(CheckUsableTest, RefusesHostsAndPorts) {
  for (const std::string& host :
       {std::string(), std::string("gw-3.example.internal"), std::string("10.0.0.7 "),
        std::string("10.0.0.7\0", 9), std::string("fe80::1%eth0"), std::string("[::1]"),
        std::string("0.0.0.0"), std::string("224.0.0.1")}) {
    SmgDescriptor d = Usable();
    d.host = host;
    EXPECT_EQ(ReasonOf(CheckUsable(d, 8)), Reason::kBadAddress) << host;
  }
  SmgDescriptor d = Usable();
  d.port = 0;
  EXPECT_EQ(ReasonOf(CheckUsable(d, 8)), Reason::kBadAddress);
}

TEST(CheckUsableTest, RefusesGenerationZero) {
  SmgDescriptor d = Usable();
  d.gen = 0;
  EXPECT_EQ(ReasonOf(CheckUsable(d, 8)), Reason::kBadGeneration);
}

TEST(CheckUsableTest, RefusesAFrameThatNoAddressSpaceHolds) {
  SmgDescriptor d = Usable();
  d.slot_addr = 0;
  EXPECT_EQ(ReasonOf(CheckUsable(d, 8)), Reason::kBadDescriptor);
  d.slot_addr = kMax64 - 24;
  EXPECT_TRUE(CheckUsable(d, 8).ok()) << "24 bytes end at the last address";
  EXPECT_EQ(ReasonOf(CheckUsable(d, 9)), Reason::kBadDescriptor);
  EXPECT_EQ(ReasonOf(CheckUsable(d, kMax64)), Reason::kTooLarge);
  EXPECT_EQ(ReasonOf(CheckUsable(d, kMax64 - 16)), Reason::kBadDescriptor);
}

TEST(CheckUsableTest, RefusesAnUnknownMagicByName) {
  for (const std::string magic : {"SMGRDMA2", "SMGRDMA0", "SMGRDMA\xff"}) {
    const std::string bytes = magic + EncodeSmgDescriptor(Usable()).substr(8, 10);
    const auto parsed = ParseSmgDescriptor(AsBytes(bytes), 42);
    ASSERT_TRUE(parsed.ok()) << "SMG's parser reads it as legacy";
    EXPECT_TRUE(parsed->legacy);
    EXPECT_TRUE(parsed->near_magic);
    const absl::Status status = CheckUsable(*parsed, 8);
    EXPECT_EQ(ReasonOf(status), Reason::kUnknownMagic);
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::CHexEscape(magic)));
  }
}

TEST(SmgDescriptorTest, LegacyHasNoNearMagic) {
  const std::string bytes = EncodeSmgDescriptor(Usable());
  const auto parsed = ParseSmgDescriptor(AsBytes(bytes).subspan(8), 42);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed->legacy);
  EXPECT_FALSE(parsed->near_magic);
}

TEST(SmgDescriptorTest, TextHasEveryField) {
  EXPECT_EQ(SmgDescriptorText(Usable()),
            "SMG descriptor, SMGRDMA1\n"
            "slot_addr   0x7f5500001000\n"
            "generation  7\n"
            "key         42\n"
            "listener    10.0.0.7 port 18515\n");
}

TEST(SmgDescriptorTest, TextEscapesWhatATerminalWouldObey) {
  SmgDescriptor d = Usable();
  d.host = "\x1b[2J";
  EXPECT_THAT(SmgDescriptorText(d), HasSubstr("\\x1b[2J"));
}

RC_GTEST_PROP(SmgDescriptorProperty, EncodingLeadsBack,
              (uint64_t slot_addr, uint64_t gen, int64_t key, uint16_t port, bool explicit_key)) {
  const SmgDescriptor d = {
      .slot_addr = slot_addr,
      .gen = gen,
      .key = key,
      .port = port,
      .host = *rc::gen::container<std::string>(rc::gen::inRange<char>(0, 127))};
  const auto parsed = ParseSmgDescriptor(AsBytes(EncodeSmgDescriptor(d)),
                                         explicit_key ? std::optional(key) : std::nullopt);
  RC_ASSERT(parsed.ok());
  RC_ASSERT(*parsed == d);
}

}  // namespace
}  // namespace tensorferry::wire
