#include "tools/input/jpeg.h"

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

// Smooth, so that compression keeps it nearly as it is.
std::vector<uint8_t> Gradient(uint32_t width, uint32_t height) {
  std::vector<uint8_t> rgb;
  for (uint32_t y = 0; y < height; ++y) {
    for (uint32_t x = 0; x < width; ++x) {
      rgb.push_back(static_cast<uint8_t>(x * 255 / width));
      rgb.push_back(static_cast<uint8_t>(y * 255 / height));
      rgb.push_back(static_cast<uint8_t>(128 + x / 2 - y / 2));
    }
  }
  return rgb;
}

template <typename T>
std::vector<T> DecodedJpeg(const std::string& jpeg, Dtype dtype) {
  const auto size = ReadJpegHeader(AsSpan(jpeg), kNoLimit);
  EXPECT_TRUE(size.ok()) << size.status();
  std::vector<T> out(size_t{3} * size->width * size->height);
  const absl::Status status =
      DecodeJpeg(AsSpan(jpeg), *size, dtype, std::as_writable_bytes(std::span(out)));
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

TEST(JpegTest, ChannelsBecomePlanes) {
  constexpr uint32_t kWidth = 50, kHeight = 34;
  const std::vector<uint8_t> rgb = Gradient(kWidth, kHeight);
  const std::string jpeg = JpegFile(kWidth, kHeight, rgb, /*gray=*/false);
  const auto bytes = DecodedJpeg<uint8_t>(jpeg, Dtype::kUint8);
  const auto wide = DecodedJpeg<float>(jpeg, Dtype::kFloat32);
  const auto brain = DecodedJpeg<uint16_t>(jpeg, Dtype::kBfloat16);
  const auto half = DecodedJpeg<uint16_t>(jpeg, Dtype::kFloat16);
  const size_t pixels = size_t{kWidth} * kHeight;
  for (size_t p = 0; p < pixels; ++p) {
    for (size_t c = 0; c < 3; ++c) {
      const size_t i = c * pixels + p;
      ASSERT_NEAR(bytes[i], rgb[3 * p + c], 8) << "pixel " << p << " channel " << c;
      ASSERT_EQ(wide[i], static_cast<float>(bytes[i]) / 255.0f);
      ASSERT_EQ(brain[i], Bfloat16FromFloat64(bytes[i] / 255.0));
      ASSERT_EQ(half[i], Float16FromFloat64(bytes[i] / 255.0));
    }
  }
}

TEST(JpegTest, GrayIsSpreadOverThreeChannels) {
  std::vector<uint8_t> gray(40 * 20);
  for (size_t i = 0; i < gray.size(); ++i) gray[i] = static_cast<uint8_t>(i / 4);
  const auto bytes = DecodedJpeg<uint8_t>(JpegFile(40, 20, gray, /*gray=*/true), Dtype::kUint8);
  for (size_t i = 0; i < gray.size(); ++i) {
    ASSERT_NEAR(bytes[i], gray[i], 8);
    ASSERT_EQ(bytes[i], bytes[gray.size() + i]);
    ASSERT_EQ(bytes[i], bytes[2 * gray.size() + i]);
  }
}

TEST(JpegTest, TruncatedAnywhereIsAnError) {
  const std::string whole = JpegFile(32, 32, Gradient(32, 32), /*gray=*/false);
  std::vector<std::byte> out(3 * 32 * 32);
  for (size_t length = 0; length < whole.size(); ++length) {
    const std::string cut = whole.substr(0, length);
    absl::Status status = ReadJpegHeader(AsSpan(cut), kNoLimit).status();
    if (status.ok()) status = DecodeJpeg(AsSpan(cut), {32, 32}, Dtype::kUint8, out);
    ASSERT_EQ(ReasonOf(status), Reason::kBadInput) << length << " of " << whole.size();
  }
}

TEST(JpegTest, RefusesCmykAndHugeSizes) {
  EXPECT_THAT(std::string(ReadJpegHeader(AsSpan(CmykJpegFile(8, 8)), kNoLimit).status().message()),
              HasSubstr("CMYK"));
  std::string jpeg = JpegFile(32, 32, Gradient(32, 32), /*gray=*/false);
  const size_t frame = jpeg.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, std::string("\xff\0\xff\0", 4));  // height, width
  const absl::Status status = ReadJpegHeader(AsSpan(jpeg), 1 << 27).status();
  EXPECT_EQ(ReasonOf(status), Reason::kTooLarge) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("65280 x 65280"));
}

}  // namespace
}  // namespace tensorferry::tools
