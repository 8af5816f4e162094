// Files to tensors: what `tensorferry send` sends.
//
//   auto inputs = OpenInputs("photo.jpg", {.dtype = Dtype::kBfloat16});
//   for (const Input& input : *inputs) {
//     Staged staged = exporter->Stage(input.nbytes);
//     absl::Status status = input.produce(staged.bytes());     // decoded straight into the arena
//   }
//
// The kind of a file is told by its content, never by its name:
//   JPEG, PNG      one tensor [3,height,width], in `dtype` or `picture_dtype`. float32, bfloat16 and
//   float16 hold
//                  value/255 (16-bit PNG: value/65535), nearest even; uint8 holds the values as
//                  they are (16-bit: the high byte). Gray and palette become RGB, alpha is dropped,
//                  gamma, colour profile and orientation marks are not applied.
//   .npy           one tensor, row-major and little-endian whatever the file has.
//   .safetensors   each tensor in it, in the order of their bytes.
// Arrays keep their dtype unless `dtype` is given; see elements.h for what converts to what. Errors
// name the file, the value, the limit and the way out. Opening reads headers only; bytes are read
// by `produce`, which may find them damaged.
// Thread-safety: pure functions; `produce` from any thread, any number of times, also at once.
// Ownership: an Input keeps its file mapped.
#ifndef TENSORFERRY_TOOLS_INPUT_INPUT_H_
#define TENSORFERRY_TOOLS_INPUT_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/base/dtype.h"

namespace tensorferry::tools {

struct Input {
  std::string file = {};    // as it was given
  std::string tensor = {};  // its name within a file of several; else empty
  std::vector<uint32_t> shape = {};
  Dtype dtype = Dtype::kUint8;
  uint64_t nbytes = 0;
  // Writes all of `out`, which is nbytes long and aligned to 8 bytes.
  std::function<absl::Status(std::span<std::byte> out)> produce = {};
};

struct InputOptions {
  std::optional<Dtype> dtype = {};
  // Of pictures where `dtype` says nothing.
  Dtype picture_dtype = Dtype::kBfloat16;
  // Largest picture, in pixels: a small file can claim to be a huge picture.
  uint64_t max_pixels = uint64_t{1} << 27;
};

absl::StatusOr<std::vector<Input>> OpenInputs(const std::string& path, const InputOptions& options);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_INPUT_INPUT_H_
