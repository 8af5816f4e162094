// The closed set of element types, and how many bytes a tensor of them takes.
//
//   auto dtype = ParseDtype("bfloat16");                    // the names used on the wire
//   auto bytes = TensorBytes({3, 448, 448}, Dtype::kBfloat16);   // 1'204'224
//
// Tensors are row-major, little-endian and contiguous. A shape without dimensions is a scalar (one
// element); a shape with a zero has no bytes.
// Thread-safety: pure functions.
#ifndef TENSORFERRY_BASE_DTYPE_H_
#define TENSORFERRY_BASE_DTYPE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tensorferry/base/export.h"

namespace tensorferry {

enum class Dtype { kFloat32, kBfloat16, kFloat16, kUint8, kInt64, kUint32 };

TENSORFERRY_EXPORT std::string_view DtypeName(Dtype dtype);
// Exactly the wire names; kUnknownDtype names the accepted ones.
TENSORFERRY_EXPORT absl::StatusOr<Dtype> ParseDtype(std::string_view name);
TENSORFERRY_EXPORT uint64_t ItemBytes(Dtype dtype);

// kBadShape when the product does not fit 64 bits.
TENSORFERRY_EXPORT absl::StatusOr<uint64_t> TensorBytes(std::span<const uint32_t> shape,
                                                        Dtype dtype);
// OK when `nbytes` is just what shape and dtype ask for, else kSizeMismatch.
TENSORFERRY_EXPORT absl::Status CheckTensorBytes(std::span<const uint32_t> shape, Dtype dtype,
                                                 uint64_t nbytes);

// "[3,448,448]"
TENSORFERRY_EXPORT std::string ShapeText(std::span<const uint32_t> shape);

}  // namespace tensorferry

#endif  // TENSORFERRY_BASE_DTYPE_H_
