#include "tools/input/png.h"

#include <png.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensorferry/base/convert.h"
#include "tensorferry/base/error.h"
#include "tools/input/input_testing.h"

namespace tensorferry::tools {
namespace {

using testing::HasSubstr;

constexpr uint64_t kNoLimit = ~uint64_t{0};

std::vector<uint16_t> RandomSamples(size_t count, int bit_depth) {
  std::mt19937 random(7);
  std::vector<uint16_t> samples(count);
  for (uint16_t& v : samples) v = static_cast<uint16_t>(random() & ((1u << bit_depth) - 1));
  return samples;
}

template <typename T>
std::vector<T> Decoded(const std::string& png, Dtype dtype) {
  const auto size = ReadPngHeader(AsSpan(png), kNoLimit);
  EXPECT_TRUE(size.ok()) << size.status();
  std::vector<T> out(size_t{3} * size->width * size->height);
  const absl::Status status =
      DecodePng(AsSpan(png), *size, dtype, std::as_writable_bytes(std::span(out)));
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

// What [3,h,w] should hold: `rgb` says one pixel's values.
template <typename Rgb>
std::vector<uint16_t> Planar(const PngImage& image, size_t channels, Rgb rgb) {
  const size_t pixels = size_t{image.width} * image.height;
  std::vector<uint16_t> planar(3 * pixels);
  for (size_t p = 0; p < pixels; ++p) {
    const std::array<uint16_t, 3> values = rgb(&image.samples[p * channels]);
    for (size_t c = 0; c < 3; ++c) planar[c * pixels + p] = values[c];
  }
  return planar;
}

void ExpectAllDtypes(const std::string& png, const std::vector<uint16_t>& planar, double scale) {
  const auto bytes = Decoded<uint8_t>(png, Dtype::kUint8);
  const auto wide = Decoded<float>(png, Dtype::kFloat32);
  const auto brain = Decoded<uint16_t>(png, Dtype::kBfloat16);
  const auto half = Decoded<uint16_t>(png, Dtype::kFloat16);
  ASSERT_EQ(bytes.size(), planar.size());
  for (size_t i = 0; i < planar.size(); ++i) {
    const double value = planar[i] / scale;
    ASSERT_EQ(bytes[i], scale > 255 ? planar[i] >> 8 : planar[i]) << i;
    ASSERT_EQ(wide[i], static_cast<float>(value)) << i;
    ASSERT_EQ(brain[i], Bfloat16FromFloat64(value)) << i;
    ASSERT_EQ(half[i], Float16FromFloat64(value)) << i;
  }
}

// Interlaced or not, and sizes that leave some of the seven passes empty.
class PngSamplesTest : public testing::TestWithParam<std::tuple<bool, std::pair<int, int>>> {
 protected:
  PngImage Image(int bit_depth, int color_type, size_t channels) const {
    const auto [width, height] = std::get<1>(GetParam());
    PngImage image{.width = static_cast<uint32_t>(width),
                   .height = static_cast<uint32_t>(height),
                   .bit_depth = bit_depth,
                   .color_type = color_type,
                   .interlaced = std::get<0>(GetParam())};
    image.samples = RandomSamples(size_t{image.width} * image.height * channels, bit_depth);
    return image;
  }
};

TEST_P(PngSamplesTest, Rgb) {
  for (const int depth : {8, 16}) {
    const PngImage image = Image(depth, PNG_COLOR_TYPE_RGB, 3);
    const auto planar = Planar(image, 3, [](const uint16_t* v) {
      return std::array{v[0], v[1], v[2]};
    });
    ExpectAllDtypes(PngFile(image), planar, depth == 8 ? 255 : 65535);
  }
}

TEST_P(PngSamplesTest, AlphaIsDropped) {
  for (const int depth : {8, 16}) {
    const PngImage image = Image(depth, PNG_COLOR_TYPE_RGB_ALPHA, 4);
    const auto planar = Planar(image, 4, [](const uint16_t* v) {
      return std::array{v[0], v[1], v[2]};
    });
    ExpectAllDtypes(PngFile(image), planar, depth == 8 ? 255 : 65535);
  }
}

TEST_P(PngSamplesTest, GrayIsSpreadOverThreeChannels) {
  for (const int depth : {1, 2, 4, 8, 16}) {
    const PngImage image = Image(depth, PNG_COLOR_TYPE_GRAY, 1);
    const uint16_t spread = static_cast<uint16_t>(depth < 8 ? 255 / ((1 << depth) - 1) : 1);
    const auto planar = Planar(image, 1, [&](const uint16_t* v) {
      const uint16_t gray = static_cast<uint16_t>(*v * spread);
      return std::array{gray, gray, gray};
    });
    ExpectAllDtypes(PngFile(image), planar, depth <= 8 ? 255 : 65535);
  }
}

TEST_P(PngSamplesTest, GrayWithAlpha) {
  for (const int depth : {8, 16}) {
    const PngImage image = Image(depth, PNG_COLOR_TYPE_GRAY_ALPHA, 2);
    const auto planar = Planar(image, 2, [](const uint16_t* v) {
      return std::array{v[0], v[0], v[0]};
    });
    ExpectAllDtypes(PngFile(image), planar, depth == 8 ? 255 : 65535);
  }
}

TEST_P(PngSamplesTest, PaletteWithAndWithoutAlpha) {
  for (const int depth : {1, 2, 4, 8}) {
    for (const bool alpha : {false, true}) {
      PngImage image = Image(depth, PNG_COLOR_TYPE_PALETTE, 1);
      for (int i = 0; i < (1 << depth); ++i) {
        image.palette.push_back(
            {static_cast<uint8_t>(i), static_cast<uint8_t>(200 - i), static_cast<uint8_t>(7 * i)});
        if (alpha) image.palette_alpha.push_back(static_cast<uint8_t>(3 * i));
      }
      const auto planar = Planar(image, 1, [&](const uint16_t* v) {
        const auto [r, g, b] = image.palette[*v];
        return std::array<uint16_t, 3>{r, g, b};
      });
      ExpectAllDtypes(PngFile(image), planar, 255);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, PngSamplesTest,
                         testing::Combine(testing::Bool(),
                                          testing::Values(std::pair(1, 1), std::pair(5, 3),
                                                          std::pair(33, 17))));

TEST(PngTest, DamageAnywhereIsAnError) {
  PngImage image{.width = 16, .height = 16, .samples = RandomSamples(16 * 16 * 3, 8)};
  for (const bool interlaced : {false, true}) {
    image.interlaced = interlaced;
    const std::string whole = PngFile(image);
    std::vector<uint8_t> out(3 * 16 * 16);
    const auto decode = [&](const std::string& file) -> absl::Status {
      const auto size = ReadPngHeader(AsSpan(file), 1000);
      if (!size.ok()) return size.status();
      return DecodePng(AsSpan(file), {16, 16}, Dtype::kUint8,
                       std::as_writable_bytes(std::span(out)));
    };
    ASSERT_TRUE(decode(whole).ok());
    for (size_t length = 0; length < whole.size(); ++length) {
      const absl::Status status = decode(whole.substr(0, length));
      ASSERT_EQ(ReasonOf(status), Reason::kBadInput) << length << " of " << whole.size();
    }
    for (size_t at = 0; at < whole.size(); ++at) {
      std::string flipped = whole;
      flipped[at] = static_cast<char>(flipped[at] ^ 0x20);
      // Every chunk has a checksum, so that nothing but the names of chunks that may be skipped is
      // free.
      ASSERT_FALSE(decode(flipped).ok()) << "byte " << at << " of " << whole.size();
    }
  }
}

TEST(PngTest, SizesAreCheckedBeforeMemoryIsTaken) {
  std::string png = PngFile({.width = 100, .height = 50, .samples = RandomSamples(15000, 8)});
  EXPECT_TRUE(ReadPngHeader(AsSpan(png), 5000).ok());
  const absl::Status status = ReadPngHeader(AsSpan(png), 4999).status();
  EXPECT_EQ(ReasonOf(status), Reason::kTooLarge);
  EXPECT_THAT(std::string(status.message()), HasSubstr("100 x 50 is 5000 pixels"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("--max-pixels"));
}

TEST(PngTest, WiderThanLibpngsOwnLimit) {
  const PngImage image{.width = 1'200'000,
                       .height = 1,
                       .color_type = PNG_COLOR_TYPE_GRAY,
                       .samples = std::vector<uint16_t>(1'200'000, 9)};
  const auto bytes = Decoded<uint8_t>(PngFile(image), Dtype::kUint8);
  EXPECT_EQ(bytes.back(), 9);
}

TEST(PngTest, AFileThatChangedIsNotWrittenBeyondItsPlace) {
  const std::string png = PngFile({.width = 4, .height = 4, .samples = RandomSamples(48, 8)});
  std::vector<std::byte> out(12);
  EXPECT_THAT(std::string(DecodePng(AsSpan(png), {2, 2}, Dtype::kUint8, out).message()),
              HasSubstr("changed"));
}

}  // namespace
}  // namespace tensorferry::tools
