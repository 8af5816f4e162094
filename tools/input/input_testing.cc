#include "tools/input/input_testing.h"

#include <png.h>
#include <turbojpeg.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "tensorferry/base/text.h"

namespace tensorferry::tools {

std::string NpyFile(std::string_view header, std::string_view data, int version) {
  std::string file("\x93NUMPY", 6);
  file += static_cast<char>(version);
  file += '\0';
  const uint32_t length = static_cast<uint32_t>(header.size() + 1);
  file.append(reinterpret_cast<const char*>(&length), version == 1 ? 2 : 4);
  return StrCat(file, header, "\n", data);
}

std::string SafetensorsFile(std::string_view header, std::string_view data) {
  const uint64_t length = header.size();
  return StrCat(std::string(reinterpret_cast<const char*>(&length), sizeof(length)), header, data);
}

namespace {

// The bytes of one row, as libpng wants them.
std::vector<uint8_t> PackRow(std::span<const uint16_t> samples, int bit_depth) {
  std::vector<uint8_t> row;
  if (bit_depth == 16) {
    for (const uint16_t v : samples) {
      row.push_back(static_cast<uint8_t>(v >> 8));
      row.push_back(static_cast<uint8_t>(v));
    }
    return row;
  }
  row.resize((samples.size() * bit_depth + 7) / 8);
  for (size_t i = 0; i < samples.size(); ++i) {
    const size_t bit = i * bit_depth;
    row[bit / 8] |= static_cast<uint8_t>(samples[i] << (8 - bit_depth - bit % 8));
  }
  return row;
}

}  // namespace

std::string PngFile(const PngImage& image) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  std::string file;
  png_set_write_fn(
      png, &file,
      [](png_structp p, png_bytep data, size_t size) {
        static_cast<std::string*>(png_get_io_ptr(p))
            ->append(reinterpret_cast<const char*>(data), size);
      },
      nullptr);
  png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
  png_set_IHDR(png, info, image.width, image.height, image.bit_depth, image.color_type,
               image.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_BASE, PNG_FILTER_TYPE_BASE);
  std::vector<png_color> palette;
  for (const auto& [r, g, b] : image.palette) palette.push_back({r, g, b});
  if (!palette.empty()) png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
  if (!image.palette_alpha.empty()) {
    png_set_tRNS(png, info, image.palette_alpha.data(),
                 static_cast<int>(image.palette_alpha.size()), nullptr);
  }
  png_write_info(png, info);
  const size_t per_row = image.samples.size() / image.height;
  std::vector<std::vector<uint8_t>> rows;
  std::vector<png_bytep> pointers;
  for (uint32_t y = 0; y < image.height; ++y) {
    rows.push_back(
        PackRow(std::span(image.samples).subspan(y * per_row, per_row), image.bit_depth));
    pointers.push_back(rows.back().data());
  }
  png_write_image(png, pointers.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return file;
}

namespace {

std::string Compress(uint32_t width, uint32_t height, const uint8_t* samples, TJPF format,
                     TJSAMP sampling) {
  const tjhandle encoder = tjInitCompress();
  unsigned char* jpeg = nullptr;
  unsigned long size = 0;
  EXPECT_EQ(tjCompress2(encoder, samples, static_cast<int>(width), 0, static_cast<int>(height),
                        format, &jpeg, &size, sampling, 95, 0),
            0)
      << tjGetErrorStr2(encoder);
  std::string file(reinterpret_cast<const char*>(jpeg), size);
  tjFree(jpeg);
  tjDestroy(encoder);
  return file;
}

}  // namespace

std::string JpegFile(uint32_t width, uint32_t height, std::span<const uint8_t> samples, bool gray) {
  return Compress(width, height, samples.data(), gray ? TJPF_GRAY : TJPF_RGB,
                  gray ? TJSAMP_GRAY : TJSAMP_444);
}

std::string CmykJpegFile(uint32_t width, uint32_t height) {
  const std::vector<uint8_t> samples(size_t{4} * width * height, 100);
  return Compress(width, height, samples.data(), TJPF_CMYK, TJSAMP_444);
}

}  // namespace tensorferry::tools
