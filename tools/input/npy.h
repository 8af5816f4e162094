// NumPy's .npy files, versions 1 to 3.
//
//   auto source = ParseNpy(file->bytes());
//   ProduceArray(*source, dtype, out);
//
// The file must hold one array of numbers and nothing after it. Fortran order and big-endian
// elements are told by the result and undone by ProduceArray. No length is trusted.
// Thread-safety: pure function.
// Ownership: the result refers to the bytes that were given.
#ifndef TENSORFERRY_TOOLS_INPUT_NPY_H_
#define TENSORFERRY_TOOLS_INPUT_NPY_H_

#include <cstddef>
#include <span>

#include "absl/status/statusor.h"
#include "tools/input/elements.h"

namespace tensorferry::tools {

bool LooksLikeNpy(std::span<const std::byte> bytes);

// kBadInput or kUnknownDtype, without the file's name.
absl::StatusOr<ArraySource> ParseNpy(std::span<const std::byte> bytes);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_INPUT_NPY_H_
