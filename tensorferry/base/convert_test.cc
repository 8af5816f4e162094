#include "tensorferry/base/convert.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace tensorferry {
namespace {

// A 16-bit float format, seen only through its exact widening.
struct Format {
  const char* name;
  float (*widen)(uint16_t);
  uint16_t (*from32)(float);
  uint16_t (*from64)(double);
  uint16_t infinity;
};

constexpr Format kBfloat16 = {"bfloat16", Float32FromBfloat16, Bfloat16FromFloat32,
                              Bfloat16FromFloat64, 0x7f80};
constexpr Format kFloat16 = {"float16", Float32FromFloat16, Float16FromFloat32, Float16FromFloat64,
                             0x7c00};

class ConvertTest : public testing::TestWithParam<Format> {};

TEST_P(ConvertTest, EveryPatternSurvivesThereAndBack) {
  const Format& format = GetParam();
  for (uint32_t i = 0; i < 65536; ++i) {
    const uint16_t bits = static_cast<uint16_t>(i);
    const float wide = format.widen(bits);
    if ((bits & 0x7fff) > format.infinity) {
      EXPECT_TRUE(std::isnan(wide)) << i;
      const uint16_t quiet = static_cast<uint16_t>(bits | ((0x8000 - format.infinity) >> 1));
      EXPECT_EQ(format.from32(wide), quiet) << i;
    } else {
      EXPECT_EQ(std::signbit(wide), bits >= 0x8000) << i;
      EXPECT_EQ(format.from32(wide), bits) << i;
      EXPECT_EQ(format.from64(wide), bits) << i;
    }
  }
}

// Rounding is monotone, so what happens at and right beside each boundary says all.
TEST_P(ConvertTest, RoundsToNearestEvenAtEveryBoundary) {
  const Format& format = GetParam();
  for (uint16_t low = 0; low < format.infinity; ++low) {
    const uint16_t high = static_cast<uint16_t>(low + 1);
    const double below = format.widen(low);
    // One step past the largest value stands where the next one would be if there were one.
    const double above = high < format.infinity
                             ? format.widen(high)
                             : below + (below - format.widen(static_cast<uint16_t>(low - 1)));
    const double middle = (below + above) / 2;
    ASSERT_EQ(static_cast<float>(middle), middle) << low;
    const uint16_t even = (low & 1) == 0 ? low : high;
    for (const double sign : {1.0, -1.0}) {
      const uint16_t s = sign < 0 ? 0x8000 : 0;
      const double m = sign * middle;
      EXPECT_EQ(format.from32(static_cast<float>(m)), even | s) << low;
      EXPECT_EQ(format.from32(std::nextafterf(static_cast<float>(m), 0.0f)), low | s) << low;
      EXPECT_EQ(format.from32(std::nextafterf(static_cast<float>(m), sign * INFINITY)), high | s)
          << low;
      EXPECT_EQ(format.from64(m), even | s) << low;
      EXPECT_EQ(format.from64(std::nextafter(m, 0.0)), low | s) << low;
      EXPECT_EQ(format.from64(std::nextafter(m, sign * INFINITY)), high | s) << low;
    }
  }
}

TEST_P(ConvertTest, OverflowsToInfinity) {
  const Format& format = GetParam();
  constexpr double kHuge = std::numeric_limits<double>::max();
  EXPECT_EQ(format.from32(std::numeric_limits<float>::max()), format.infinity);
  EXPECT_EQ(format.from32(-INFINITY), format.infinity | 0x8000);
  EXPECT_EQ(format.from64(kHuge), format.infinity);
  EXPECT_EQ(format.from64(-kHuge), format.infinity | 0x8000);
  EXPECT_EQ(format.from64(std::numeric_limits<double>::denorm_min()), 0);
  EXPECT_EQ(format.from64(-std::numeric_limits<double>::denorm_min()), 0x8000);
}

TEST_P(ConvertTest, NanStaysNan) {
  const Format& format = GetParam();
  for (const uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u}) {
    const uint16_t narrow = format.from32(std::bit_cast<float>(bits));
    EXPECT_TRUE(std::isnan(format.widen(narrow))) << std::hex << bits << " became " << narrow;
    EXPECT_EQ(narrow >> 15, bits >> 31);
  }
  EXPECT_TRUE(std::isnan(format.widen(format.from64(std::nan("")))));
}

// Of every float32 the nearest, told by the boundary between two neighbours alone.
TEST_P(ConvertTest, LongEveryFloat32IsRoundedToTheNearest) {
  const Format& format = GetParam();
  uint16_t low = 0;
  double middle = 0;
  const auto step_to = [&](uint16_t bits) {
    low = bits;
    const double here = format.widen(bits);
    const auto next = static_cast<uint16_t>(bits + 1);
    // Past the largest value as if there were one more.
    const double above = next < format.infinity
                             ? format.widen(next)
                             : 2 * here - format.widen(static_cast<uint16_t>(bits - 1));
    middle = (here + above) / 2;
  };
  step_to(0);
  uint64_t wrong = 0;
  for (uint32_t bits = 0; bits <= 0x7f800000u; ++bits) {
    const auto value = std::bit_cast<float>(bits);
    while (low + 1 < format.infinity && value >= format.widen(static_cast<uint16_t>(low + 1))) {
      step_to(static_cast<uint16_t>(low + 1));
    }
    const bool up = value > middle || (value == middle && (low & 1) != 0);
    const auto nearest = static_cast<uint16_t>(low + (up ? 1 : 0));
    wrong += format.from32(value) != nearest ? 1 : 0;
    wrong += format.from32(-value) != (nearest | 0x8000) ? 1 : 0;
  }
  for (uint32_t bits = 0x7f800001u; bits <= 0x7fffffffu; ++bits) {
    for (const uint32_t sign : {0u, 0x80000000u}) {
      const uint16_t narrow = format.from32(std::bit_cast<float>(bits | sign));
      wrong += (narrow & 0x7fff) <= format.infinity || narrow >> 15 != sign >> 31 ? 1 : 0;
    }
  }
  EXPECT_EQ(wrong, 0U);
}

INSTANTIATE_TEST_SUITE_P(, ConvertTest, testing::Values(kBfloat16, kFloat16),
                         [](const auto& instance) { return instance.param.name; });

TEST(WideningTest, KnownValues) {
  EXPECT_EQ(Float32FromFloat16(0x0001), 0x1p-24f);
  EXPECT_EQ(Float32FromFloat16(0x03ff), 1023 * 0x1p-24f);
  EXPECT_EQ(Float32FromFloat16(0x0400), 0x1p-14f);
  EXPECT_EQ(Float32FromFloat16(0x3555), 0.333251953125f);
  EXPECT_EQ(Float32FromFloat16(0x7bff), 65504.0f);
  EXPECT_EQ(Float32FromFloat16(0xfc00), -INFINITY);
  EXPECT_EQ(Float32FromBfloat16(0x3f80), 1.0f);
  EXPECT_EQ(Float32FromBfloat16(0x0001), 0x1p-133f);
}

// `bits` is nearest to value / divisor when no neighbour is nearer. All products here have at most
// 40 bits, so the doubles are exact.
template <typename Bits, typename Widen>
void ExpectNearest(Bits bits, uint32_t value, uint32_t divisor, Widen widen) {
  const auto distance = [&](Bits b) { return std::abs(double{widen(b)} * divisor - value); };
  const double here = distance(bits);
  const double above = distance(static_cast<Bits>(bits + 1));
  EXPECT_LE(here, above) << value << "/" << divisor;
  if (bits == 0) return;
  const double below = distance(static_cast<Bits>(bits - 1));
  EXPECT_LE(here, below) << value << "/" << divisor;
  if (here == above || here == below) {
    EXPECT_EQ(bits & 1, 0) << value << "/" << divisor;
  }
}

template <typename In>
void CheckUnorm(uint32_t divisor, void (*to32)(std::span<const In>, std::span<float>),
                void (*to_bfloat16)(std::span<const In>, std::span<uint16_t>),
                void (*to_float16)(std::span<const In>, std::span<uint16_t>)) {
  std::vector<In> all(divisor + 1);
  std::iota(all.begin(), all.end(), In{0});
  std::vector<float> wide(all.size());
  std::vector<uint16_t> brain(all.size()), half(all.size());
  to32(all, wide);
  to_bfloat16(all, brain);
  to_float16(all, half);
  for (uint32_t v = 0; v <= divisor; ++v) {
    ExpectNearest(std::bit_cast<uint32_t>(wide[v]), v, divisor,
                  [](uint32_t b) { return std::bit_cast<float>(b); });
    ExpectNearest(brain[v], v, divisor, Float32FromBfloat16);
    ExpectNearest(half[v], v, divisor, Float32FromFloat16);
  }
  EXPECT_EQ(wide[0], 0.0f);
  EXPECT_EQ(wide[divisor], 1.0f);
  EXPECT_EQ(brain[divisor], 0x3f80);
  EXPECT_EQ(half[divisor], 0x3c00);
}

TEST(UnormTest, EveryEightBitValueIsNearest) {
  CheckUnorm<uint8_t>(255, Unorm8ToFloat32, Unorm8ToBfloat16, Unorm8ToFloat16);
}

TEST(UnormTest, EverySixteenBitValueIsNearest) {
  CheckUnorm<uint16_t>(65535, Unorm16ToFloat32, Unorm16ToBfloat16, Unorm16ToFloat16);
}

// Lengths around the block of the vectorised loop: each element is converted, none beyond the end.
TEST(SpanTest, EveryLengthConvertsAllAndOnlyItsElements) {
  constexpr uint16_t kUntouched = 0xdead;
  for (size_t n = 0; n < 100; ++n) {
    std::vector<float> in(n);
    std::iota(in.begin(), in.end(), 1.0f);
    const std::vector<double> wide(in.begin(), in.end());
    std::vector<uint16_t> brain(n + 1, kUntouched), half(n + 1, kUntouched);
    Float32ToBfloat16(in, std::span(brain).first(n));
    Float32ToFloat16(in, std::span(half).first(n));
    std::vector<uint16_t> brain64(n), half64(n);
    Float64ToBfloat16(wide, brain64);
    Float64ToFloat16(wide, half64);
    for (size_t i = 0; i < n; ++i) {
      ASSERT_EQ(brain[i], Bfloat16FromFloat32(in[i]));
      ASSERT_EQ(half[i], Float16FromFloat32(in[i]));
      ASSERT_EQ(brain64[i], brain[i]);
      ASSERT_EQ(half64[i], half[i]);
    }
    ASSERT_EQ(brain[n], kUntouched);
    ASSERT_EQ(half[n], kUntouched);
    std::vector<float> back(n);
    Bfloat16ToFloat32(std::span(brain).first(n), back);
    ASSERT_EQ(back, in);
    Float16ToFloat32(std::span(half).first(n), back);
    ASSERT_EQ(back, in);
  }
}

}  // namespace
}  // namespace tensorferry
