#include "tensorferry/wire/local_messages.h"

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rapidcheck/gtest.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/wire/bytes.h"

namespace tensorferry::wire {
namespace {

using ::testing::HasSubstr;

LocalWelcome AWelcome() {
  LocalWelcome w;
  w.instance.fill(0xaa);
  w.arena_bytes = 1 << 20;
  w.table_entries = 1024;
  w.max_claim_bytes = 1 << 18;
  return w;
}

LocalRelease ARelease() {
  LocalRelease r;
  r.lease = {.id = 5, .generation = 7, .token = {}};
  r.lease.token.fill(0xbb);
  return r;
}

template <size_t N>
std::string Hex(const std::array<std::byte, N>& bytes) {
  return absl::BytesToHexString(AbslView(AsText(bytes)));
}

TEST(LocalWelcomeTest, GoldenBytes) {
  EXPECT_EQ(Hex(EncodeLocalWelcome(AWelcome())),
            "54465731"
            "0000"
            "0000"
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
            "0000100000000000"
            "0004000000000000"
            "0000040000000000"
            "00000000000000000000000000000000");
}

TEST(LocalReleaseTest, GoldenBytes) {
  EXPECT_EQ(Hex(EncodeLocalRelease(ARelease())),
            "54465231"
            "00000000"
            "0500000000000000"
            "0700000000000000"
            "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
            "0000000000000000");
}

// `is_field(i)`: byte i belongs to a field, so that any value is legal there.
template <size_t N, typename Decode, typename Encode, typename IsField>
void FlipEveryBit(const std::array<std::byte, N>& good, Decode decode, Encode encode,
                  IsField is_field) {
  for (size_t i = 0; i < N; ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      auto bytes = good;
      bytes[i] ^= std::byte{1} << bit;
      const auto message = decode(bytes);
      ASSERT_EQ(message.ok(), is_field(i)) << i << "." << bit;
      if (message.ok()) {
        EXPECT_EQ(encode(*message), bytes);
      } else {
        const auto reason = ReasonOf(message.status());
        EXPECT_TRUE(reason == Reason::kProtocol || (i == 3 && reason == Reason::kUnknownVersion));
      }
    }
  }
}

TEST(LocalWelcomeTest, EveryByteIsAFieldOrRefused) {
  FlipEveryBit(EncodeLocalWelcome(AWelcome()), DecodeLocalWelcome, EncodeLocalWelcome,
               [](size_t i) { return (i >= 4 && i < 6) || (i >= 8 && i < 48); });
}

TEST(LocalReleaseTest, EveryByteIsAFieldOrRefused) {
  FlipEveryBit(EncodeLocalRelease(ARelease()), DecodeLocalRelease, EncodeLocalRelease,
               [](size_t i) { return i >= 8 && i < 40; });
}

// SOCK_SEQPACKET hands over whatever length the peer sent.
TEST(LocalMessagesTest, RefuseEveryOtherSize) {
  const auto welcome = EncodeLocalWelcome(AWelcome());
  const auto release = EncodeLocalRelease(ARelease());
  std::vector<std::byte> longer(welcome.begin(), welcome.end());
  longer.push_back(std::byte{0});
  EXPECT_EQ(ReasonOf(DecodeLocalWelcome(longer).status()), Reason::kProtocol);
  longer.assign(release.begin(), release.end());
  longer.push_back(std::byte{0});
  EXPECT_EQ(ReasonOf(DecodeLocalRelease(longer).status()), Reason::kProtocol);
  for (size_t n = 0; n < welcome.size(); ++n) {
    const auto status = DecodeLocalWelcome(std::span(welcome).first(n)).status();
    EXPECT_EQ(ReasonOf(status), Reason::kProtocol) << n;
  }
  for (size_t n = 0; n < release.size(); ++n) {
    const auto status = DecodeLocalRelease(std::span(release).first(n)).status();
    EXPECT_EQ(ReasonOf(status), Reason::kProtocol) << n;
  }
}

// A newer version may well have another size.
TEST(LocalMessagesTest, NameAnotherVersionWhateverItsSize) {
  const auto w = DecodeLocalWelcome(AsBytes("TFW2 something longer or shorter"));
  EXPECT_EQ(ReasonOf(w.status()), Reason::kUnknownVersion);
  EXPECT_THAT(std::string(w.status().message()),
              HasSubstr("version 2, this side speaks version 1"));
  EXPECT_EQ(ReasonOf(DecodeLocalRelease(AsBytes("TFR9")).status()), Reason::kUnknownVersion);
}

RC_GTEST_PROP(LocalProperty, WelcomesLeadBack,
              (uint16_t status, const InstanceId& instance, uint64_t arena_bytes,
               uint64_t table_entries, uint64_t max_claim_bytes)) {
  const LocalWelcome w = {.status = status,
                          .instance = instance,
                          .arena_bytes = arena_bytes,
                          .table_entries = table_entries,
                          .max_claim_bytes = max_claim_bytes};
  const auto back = DecodeLocalWelcome(EncodeLocalWelcome(w));
  RC_ASSERT(back.ok());
  RC_ASSERT(*back == w);
}

RC_GTEST_PROP(LocalProperty, ReleasesLeadBack,
              (uint64_t id, uint64_t generation, const Token& token)) {
  const LocalRelease r = {.lease = {.id = id, .generation = generation, .token = token}};
  const auto back = DecodeLocalRelease(EncodeLocalRelease(r));
  RC_ASSERT(back.ok());
  RC_ASSERT(*back == r);
}

}  // namespace
}  // namespace tensorferry::wire
