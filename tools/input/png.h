// PNG pictures.
//
//   auto size = ReadPngHeader(file->bytes(), max_pixels);
//   auto status = DecodePng(file->bytes(), *size, dtype, out);     // [3,height,width]
//
// Every colour type and depth, interlaced or not. Gray and palette become RGB (fewer than 8 bits
// are spread over 0..255), alpha is dropped, gamma is not applied. A file that is damaged or ends
// early is an error.
// Thread-safety: pure functions.
#ifndef TENSORFERRY_TOOLS_INPUT_PNG_H_
#define TENSORFERRY_TOOLS_INPUT_PNG_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "tensorferry/base/dtype.h"
#include "tools/input/picture.h"

namespace tensorferry::tools {

bool LooksLikePng(std::span<const std::byte> bytes);

// kBadInput or kTooLarge, without the file's name.
absl::StatusOr<PictureSize> ReadPngHeader(std::span<const std::byte> bytes, uint64_t max_pixels);
// `size` is what the header said.
absl::Status DecodePng(std::span<const std::byte> bytes, PictureSize size, Dtype dtype,
                       std::span<std::byte> out);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_INPUT_PNG_H_
