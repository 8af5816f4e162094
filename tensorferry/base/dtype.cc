#include "tensorferry/base/dtype.h"

#include "absl/strings/str_join.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry {
namespace {

struct Entry {
  Dtype dtype;
  std::string_view name;
  uint64_t bytes;
};

constexpr Entry kTable[] = {
    {Dtype::kFloat32, "float32", 4}, {Dtype::kBfloat16, "bfloat16", 2},
    {Dtype::kFloat16, "float16", 2}, {Dtype::kUint8, "uint8", 1},
    {Dtype::kInt64, "int64", 8},     {Dtype::kUint32, "uint32", 4},
};

const Entry& Find(Dtype dtype) { return kTable[static_cast<size_t>(dtype)]; }

}  // namespace

std::string_view DtypeName(Dtype dtype) { return Find(dtype).name; }
uint64_t ItemBytes(Dtype dtype) { return Find(dtype).bytes; }

absl::StatusOr<Dtype> ParseDtype(std::string_view name) {
  for (const Entry& e : kTable) {
    if (e.name == name) return e.dtype;
  }
  return MakeError(
      Reason::kUnknownDtype,
      StrCat("dtype \"", name, "\" is none of float32, bfloat16, float16, uint8, int64, uint32"));
}

absl::StatusOr<uint64_t> TensorBytes(std::span<const uint32_t> shape, Dtype dtype) {
  // A zero anywhere makes an empty tensor, however large the other dimensions are.
  for (const uint32_t dim : shape) {
    if (dim == 0) return 0;
  }
  uint64_t bytes = ItemBytes(dtype);
  for (const uint32_t dim : shape) {
    if (__builtin_mul_overflow(bytes, uint64_t{dim}, &bytes)) {
      return MakeError(Reason::kBadShape, StrCat("shape ", ShapeText(shape), " of ",
                                                 DtypeName(dtype), " is over 2^64 bytes"));
    }
  }
  return bytes;
}

absl::Status CheckTensorBytes(std::span<const uint32_t> shape, Dtype dtype, uint64_t nbytes) {
  const absl::StatusOr<uint64_t> expected = TensorBytes(shape, dtype);
  if (!expected.ok()) return expected.status();
  if (*expected != nbytes) {
    return MakeError(Reason::kSizeMismatch, StrCat(nbytes, " bytes, but shape ", ShapeText(shape),
                                                   " of ", DtypeName(dtype), " takes ", *expected));
  }
  return absl::OkStatus();
}

std::string ShapeText(std::span<const uint32_t> shape) {
  return StrCat("[", absl::StrJoin(shape.begin(), shape.end(), ","), "]");
}

}  // namespace tensorferry
