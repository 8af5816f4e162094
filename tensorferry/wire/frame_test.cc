#include "tensorferry/wire/frame.h"

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rapidcheck/gtest.h"
#include "tensorferry/base/error.h"
#include "tensorferry/wire/bytes.h"

namespace tensorferry::wire {
namespace {

using namespace std::string_view_literals;
using ::testing::HasSubstr;

constexpr uint64_t kMax64 = std::numeric_limits<uint64_t>::max();

std::vector<std::byte> Frame(std::string_view payload, uint64_t gen) {
  std::vector<std::byte> frame(payload.size() + kFrameOverhead);
  WriteFrameHeader(frame.data(), gen);
  std::memcpy(frame.data() + kFrameStampBytes, payload.data(), payload.size());
  WriteFrameTrailer(frame.data(), payload.size(), gen);
  return frame;
}

TEST(FrameTest, GoldenBytes) {
  EXPECT_EQ(AsText(Frame("abcde", 7)), "\x07\0\0\0\0\0\0\0abcde\x07\0\0\0\0\0\0\0"sv);
}

TEST(FrameTest, BytesCountTheStamps) {
  EXPECT_EQ(*FrameBytes(0), 16u);
  EXPECT_EQ(*FrameBytes(kMax64 - 16), kMax64);
  EXPECT_EQ(ReasonOf(FrameBytes(kMax64 - 15).status()), Reason::kTooLarge);
  EXPECT_EQ(ReasonOf(FrameBytes(kMax64).status()), Reason::kTooLarge);
}

TEST(FrameTest, AcceptsAnyGenerationAndNoPayload) {
  EXPECT_TRUE(CheckFrame(Frame("", 0), 0, 0).ok());
  EXPECT_TRUE(CheckFrame(Frame("x", kMax64), 1, kMax64).ok());
}

TEST(FrameTest, RefusesAnyFlippedBitOfAStampAndNamesAllThree) {
  std::vector<std::byte> frame = Frame("abcde", 7);
  for (size_t i = 0; i < frame.size(); ++i) {
    const bool payload = i >= 8 && i < 13;
    for (int bit = 0; bit < 8; ++bit) {
      frame[i] ^= std::byte{1} << bit;
      EXPECT_EQ(CheckFrame(frame, 5, 7).ok(), payload) << i << "." << bit;
      frame[i] ^= std::byte{1} << bit;
    }
  }
  WriteFrameTrailer(frame.data(), 5, 9);
  const absl::Status torn = CheckFrame(frame, 5, 8);
  EXPECT_EQ(ReasonOf(torn), Reason::kBadGeneration);
  EXPECT_EQ(torn.message(), "expected generation 8, the frame begins with 7 and ends with 9");
}

TEST(FrameTest, TrustsNoSize) {
  const std::vector<std::byte> frame = Frame("abcde", 7);
  for (const uint64_t nbytes : {uint64_t{0}, uint64_t{4}, uint64_t{6}, kMax64, kMax64 - 15}) {
    EXPECT_EQ(ReasonOf(CheckFrame(frame, nbytes, 7)), Reason::kSizeMismatch) << nbytes;
  }
  for (size_t n = 0; n < frame.size(); ++n) {
    EXPECT_EQ(ReasonOf(CheckFrame(std::span(frame).first(n), 5, 7)), Reason::kSizeMismatch) << n;
  }
  // What nbytes wraps around to where a reader forgets that short frames exist.
  for (size_t n = 0; n < kFrameOverhead; ++n) {
    EXPECT_FALSE(CheckFrame(std::span(frame).first(n), n - kFrameOverhead, 7).ok()) << n;
  }
}

RC_GTEST_PROP(FrameProperty, AcceptsJustItsOwnGeneration,
              (const std::string& payload, uint64_t gen, uint64_t other)) {
  const std::vector<std::byte> frame = Frame(payload, gen);
  RC_ASSERT(frame.size() == *FrameBytes(payload.size()));
  RC_ASSERT(CheckFrame(frame, payload.size(), gen).ok());
  RC_ASSERT(AsText(frame).substr(8, payload.size()) == payload);
  RC_ASSERT(CheckFrame(frame, payload.size(), other).ok() == (gen == other));
}

}  // namespace
}  // namespace tensorferry::wire
