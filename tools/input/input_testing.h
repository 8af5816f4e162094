// Makes the files that the tests of readers read.
//
//   TempDir dir;
//   const std::string path = dir.Write("a.npy", NpyFile("{'descr': '<f4', ...}", Bytes<float>({1,
//   2}))); EXPECT_EQ(Produced<float>(Only(OpenInputs(path, {}))), ...);
#ifndef TENSORFERRY_TOOLS_INPUT_INPUT_TESTING_H_
#define TENSORFERRY_TOOLS_INPUT_INPUT_TESTING_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "tensorferry/base/temp_dir_testing.h"
#include "tools/input/input.h"

namespace tensorferry::tools {

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

inline std::span<const std::byte> AsSpan(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Version 1 for headers that fit, else `version`.
std::string NpyFile(std::string_view header, std::string_view data, int version = 1);
std::string SafetensorsFile(std::string_view header, std::string_view data);

// Samples as PNG holds them: one byte each up to 8 bits, packed here; 16 bits are big-endian pairs.
struct PngImage {
  uint32_t width = 0, height = 0;
  int bit_depth = 8;
  int color_type = 2;  // PNG_COLOR_TYPE_RGB
  bool interlaced = false;
  std::vector<uint16_t> samples = {};  // row by row, pixel by pixel
  std::vector<std::array<uint8_t, 3>> palette = {};
  std::vector<uint8_t> palette_alpha = {};
};
std::string PngFile(const PngImage& image);

// `rgb` is interleaved; gray takes a third of it.
std::string JpegFile(uint32_t width, uint32_t height, std::span<const uint8_t> samples, bool gray);
std::string CmykJpegFile(uint32_t width, uint32_t height);

inline Input Only(absl::StatusOr<std::vector<Input>> inputs) {
  EXPECT_TRUE(inputs.ok()) << inputs.status();
  if (!inputs.ok() || inputs->size() != 1) {
    ADD_FAILURE() << "not one input";
    return Input{.produce = [](std::span<std::byte>) { return absl::OkStatus(); }};
  }
  return (*inputs)[0];
}

template <typename T>
std::vector<T> Produced(const Input& input) {
  std::vector<T> values(input.nbytes / sizeof(T));
  EXPECT_EQ(input.nbytes % sizeof(T), 0u);
  const absl::Status status = input.produce(std::as_writable_bytes(std::span(values)));
  EXPECT_TRUE(status.ok()) << status;
  return values;
}

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_INPUT_INPUT_TESTING_H_
