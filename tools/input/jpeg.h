// JPEG pictures.
//
//   auto size = ReadJpegHeader(file->bytes(), max_pixels);
//   auto status = DecodeJpeg(file->bytes(), *size, dtype, out);     // [3,height,width]
//
// 8 bits a sample, gray or YCbCr or RGB. CMYK is refused, for it needs a colour profile to mean
// anything. A picture that is damaged or ends early is an error, where a viewer would show what
// there is.
// Thread-safety: pure functions.
#ifndef TENSORFERRY_TOOLS_INPUT_JPEG_H_
#define TENSORFERRY_TOOLS_INPUT_JPEG_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "tensorferry/base/dtype.h"
#include "tools/input/picture.h"

namespace tensorferry::tools {

bool LooksLikeJpeg(std::span<const std::byte> bytes);

// kBadInput or kTooLarge, without the file's name.
absl::StatusOr<PictureSize> ReadJpegHeader(std::span<const std::byte> bytes, uint64_t max_pixels);
// `size` is what the header said.
absl::Status DecodeJpeg(std::span<const std::byte> bytes, PictureSize size, Dtype dtype,
                        std::span<std::byte> out);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_INPUT_JPEG_H_
