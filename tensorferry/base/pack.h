// A tensor from wherever it lies into memory of its own: packed if it is strided, converted if its
// dtype is another.
//
//   // A picture as decoders leave it, [height][width][3], sent as [3,height,width]:
//   StridedTensor pixels{.data = rgb, .dtype = Dtype::kFloat32, .shape = {3, h, w},
//                        .strides = {1, 3 * w, 3}};
//   Staged staged = exporter->Stage(*TensorBytes(pixels.shape, Dtype::kBfloat16));
//   absl::Status s = Pack(pixels, Dtype::kBfloat16, staged.bytes());
//
// What is written is row-major and contiguous, straight into `out`, without a copy in between.
// Between float32, bfloat16 and float16 numbers are rounded as in base/convert.h; every dtype can
// stay as it is; no other pair converts, since nobody knows what is meant (a byte may be a number
// or a brightness: see Unorm8ToBfloat16).
// Thread-safety: pure functions.
// Ownership: `data` is the caller's, aligned for its dtype, and does not overlap `out`.
#ifndef TENSORFERRY_BASE_PACK_H_
#define TENSORFERRY_BASE_PACK_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "tensorferry/base/dtype.h"
#include "tensorferry/base/export.h"

namespace tensorferry {

struct StridedTensor {
  const void* data = nullptr;  // the first element, whatever the strides' signs
  Dtype dtype = Dtype::kFloat32;
  std::vector<uint32_t> shape = {};
  // In elements, one for each dimension; 0 repeats, negative walks back. Empty: contiguous.
  std::vector<int64_t> strides = {};
};

// `out` is just as long as shape and `to` ask for, and aligned for `to`. kBadShape, kSizeMismatch,
// kUnknownDtype for a pair that does not convert.
TENSORFERRY_EXPORT absl::Status Pack(const StridedTensor& from, Dtype to, std::span<std::byte> out);

// Elements of any size that stay as they are, at any address; what arrays of other libraries say.
struct StridedItems {
  const std::byte* data = nullptr;  // the first
  uint64_t item_bytes = 1;
  std::span<const int64_t> shape = {};    // none is negative
  std::span<const int64_t> strides = {};  // in bytes, one for each dimension

  // Row-major without gaps, so that it can be copied at once.
  TENSORFERRY_EXPORT bool contiguous() const;
};

// `out` has room for all of them.
TENSORFERRY_EXPORT void PackItems(const StridedItems& from, std::byte* out);

}  // namespace tensorferry

#endif  // TENSORFERRY_BASE_PACK_H_
