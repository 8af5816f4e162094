// The .safetensors format: reading every tensor of a file, and writing one.
//
//   auto arrays = ParseSafetensors(file->bytes());
//   for (const NamedArray& array : *arrays) ...
//   auto status = SaveSafetensors(path, {.name = "encoder_input", .shape = shape,
//                                        .dtype = Dtype::kBfloat16, .bytes = bytes});
//
// Parsing holds a file to the format's rules: a header of at most 100 MB of JSON without repeated
// names, and data that the tensors cover once and wholly, without gap or overlap. No length is
// trusted. Saving is atomic: the file appears under its name when it is complete.
// Thread-safety: pure functions, but for the file that SaveSafetensors writes.
// Ownership: parsed arrays refer to the bytes that were given.
#ifndef TENSORFERRY_TOOLS_INPUT_SAFETENSORS_H_
#define TENSORFERRY_TOOLS_INPUT_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/base/dtype.h"
#include "tools/input/elements.h"

namespace tensorferry::tools {

struct NamedArray {
  std::string name;
  ArraySource source;
};

bool LooksLikeSafetensors(std::span<const std::byte> bytes);

// In the order of their bytes. kBadInput or kUnknownDtype, without the file's name.
absl::StatusOr<std::vector<NamedArray>> ParseSafetensors(std::span<const std::byte> bytes);

struct TensorToSave {
  std::string_view name = {};
  std::span<const uint32_t> shape = {};
  Dtype dtype = Dtype::kUint8;
  std::span<const std::byte> bytes = {};
};

absl::Status SaveSafetensors(const std::string& path, const TensorToSave& tensor);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_INPUT_SAFETENSORS_H_
