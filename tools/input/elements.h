// Arrays as files hold them, and as tensors want them.
//
//   ArraySource source{.bytes = data, .element = Element::kFloat64, .shape = {2, 3}, .fortran =
//   true}; auto dtype = ChooseDtype(source.element, Dtype::kBfloat16); ProduceArray(source, *dtype,
//   out);       // row-major, little-endian, nearest even
//
// What becomes what, with --dtype:
//   any float            -> float32, bfloat16, float16    nearest even, beyond the range infinity
//   bool, int8, uint8    -> float32, bfloat16, float16    exact
//   int16, uint16        -> float32                       exact
//   bool                 -> uint8                         0 and 1
//   the same dtype       -> itself                        bit for bit
// Everything else would wrap, clip or lose digits somewhere, and is refused by name. Without
// --dtype, what travels as it is: float32, bfloat16, float16, uint8, int64, uint32.
// Thread-safety: pure functions.
#ifndef TENSORFERRY_TOOLS_INPUT_ELEMENTS_H_
#define TENSORFERRY_TOOLS_INPUT_ELEMENTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/base/dtype.h"

namespace tensorferry::tools {

enum class Element {
  kBool,
  kInt8,
  kUint8,
  kInt16,
  kUint16,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
};

// "int16"
std::string_view ElementName(Element element);
uint64_t ElementBytes(Element element);

struct ArraySource {
  std::span<const std::byte> bytes =
      {};  // just as long as shape and element ask for; any alignment
  Element element = Element::kUint8;
  std::vector<uint32_t> shape = {};
  bool fortran = false;  // first index fastest
  bool big_endian = false;
};

// The bytes that a shape takes. kBadInput when they do not fit 64 bits.
absl::StatusOr<uint64_t> ArrayBytes(std::span<const uint32_t> shape, Element element);

// The dtype that elements travel as, or kUnknownDtype with the ways out.
absl::StatusOr<Dtype> ChooseDtype(Element element, std::optional<Dtype> wanted);

// `dtype` comes from ChooseDtype, `out` has TensorBytes(shape, dtype) bytes, of any alignment.
void ProduceArray(const ArraySource& source, Dtype dtype, std::span<std::byte> out);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_INPUT_ELEMENTS_H_
