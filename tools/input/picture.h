// What JPEG and PNG have in common: rows of RGB become one tensor [3,height,width].
//
//   PlanarWriter writer(dtype, size, out);
//   for (uint32_t y = 0; y < size.height; ++y) writer.Row8(y, rgb_row);
//
// float32, bfloat16 and float16 hold value/255 or value/65535, nearest even; uint8 holds the value,
// of 16 bits the high byte.
// Thread-safety: none.
// Ownership: `out` belongs to the caller.
#ifndef TENSORFERRY_TOOLS_INPUT_PICTURE_H_
#define TENSORFERRY_TOOLS_INPUT_PICTURE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "tensorferry/base/dtype.h"

namespace tensorferry::tools {

struct PictureSize {
  uint32_t width = 0;
  uint32_t height = 0;
  friend bool operator==(const PictureSize&, const PictureSize&) = default;
};

// OK for a size within the limit, else kBadInput with the way out.
absl::Status CheckPictureSize(PictureSize size, uint64_t max_pixels);

// OK for float32, bfloat16, float16 and uint8, else kUnknownDtype.
absl::Status CheckPictureDtype(Dtype dtype);

class PlanarWriter {
 public:
  // `out` has 3 * height * width items and is aligned for them.
  PlanarWriter(Dtype dtype, PictureSize size, std::span<std::byte> out);

  // 3 * width interleaved samples.
  void Row8(uint32_t y, const uint8_t* rgb);
  void Row16(uint32_t y, const uint16_t* rgb);

 private:
  std::byte* At(uint32_t channel, uint32_t y) const;

  const Dtype dtype_;
  const size_t width_, height_;
  const std::span<std::byte> out_;
  std::vector<uint8_t> channel8_;
  std::vector<uint16_t> channel16_;
};

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_INPUT_PICTURE_H_
