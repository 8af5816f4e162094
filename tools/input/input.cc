#include "tools/input/input.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/wire/bytes.h"
#include "tools/input/elements.h"
#include "tools/input/file.h"
#include "tools/input/jpeg.h"
#include "tools/input/npy.h"
#include "tools/input/picture.h"
#include "tools/input/png.h"
#include "tools/input/safetensors.h"
#include "tools/sha256.h"

namespace tensorferry::tools {
namespace {

using File = std::shared_ptr<const MappedFile>;
using Decode = absl::Status (*)(std::span<const std::byte>, PictureSize, Dtype,
                                std::span<std::byte>);

absl::StatusOr<std::vector<Input>> Picture(File file, const absl::StatusOr<PictureSize>& size,
                                           Decode decode, const InputOptions& options) {
  if (!size.ok()) return size.status();
  Input input;
  input.dtype = options.dtype.value_or(options.picture_dtype);
  if (absl::Status status = CheckPictureDtype(input.dtype); !status.ok()) return status;
  input.shape = {3, size->height, size->width};
  const absl::StatusOr<uint64_t> nbytes = TensorBytes(input.shape, input.dtype);
  if (!nbytes.ok()) return nbytes.status();
  input.nbytes = *nbytes;
  input.produce = [file = std::move(file), size = *size, decode, dtype = input.dtype](
                      std::span<std::byte> out) { return decode(file->bytes(), size, dtype, out); };
  return std::vector<Input>{std::move(input)};
}

absl::StatusOr<Input> Array(File file, std::string name, ArraySource source,
                            const InputOptions& options) {
  Input input;
  const absl::StatusOr<Dtype> dtype = ChooseDtype(source.element, options.dtype);
  if (!dtype.ok()) return dtype.status();
  input.dtype = *dtype;
  input.tensor = std::move(name);
  input.shape = source.shape;
  const absl::StatusOr<uint64_t> nbytes = TensorBytes(input.shape, input.dtype);
  if (!nbytes.ok()) return nbytes.status();
  input.nbytes = *nbytes;
  input.produce = [file = std::move(file), source = std::move(source),
                   dtype = *dtype](std::span<std::byte> out) {
    ProduceArray(source, dtype, out);
    return absl::OkStatus();
  };
  return input;
}

absl::StatusOr<std::vector<Input>> Npy(File file, const InputOptions& options) {
  absl::StatusOr<ArraySource> source = ParseNpy(file->bytes());
  if (!source.ok()) return source.status();
  absl::StatusOr<Input> input = Array(std::move(file), "", *std::move(source), options);
  if (!input.ok()) return input.status();
  return std::vector<Input>{*std::move(input)};
}

absl::StatusOr<std::vector<Input>> Safetensors(File file, const InputOptions& options) {
  absl::StatusOr<std::vector<NamedArray>> arrays = ParseSafetensors(file->bytes());
  if (!arrays.ok()) return arrays.status();
  std::vector<Input> inputs;
  for (NamedArray& array : *arrays) {
    const std::string context = StrCat("tensor \"", array.name, "\"");
    absl::StatusOr<Input> input =
        Array(file, std::move(array.name), std::move(array.source), options);
    if (!input.ok()) return Annotate(input.status(), context);
    inputs.push_back(*std::move(input));
  }
  return inputs;
}

// What people send by mistake, by its first bytes.
std::string_view KnownByAnotherName(std::string_view start) {
  constexpr std::pair<std::string_view, std::string_view> kOthers[] = {
      {"GIF8", "a GIF picture; save it as PNG"},
      {"RIFF", "a RIFF file, perhaps a WebP picture; save it as PNG"},
      {"BM", "a BMP picture; save it as PNG"},
      {"II*", "a TIFF picture; save it as PNG"},
      {"MM", "a TIFF picture; save it as PNG"},
      {"PK\x03\x04", "a ZIP archive (.npz, or a PyTorch file); save its arrays as .safetensors"},
      {"\x80", "a Python pickle; save its arrays as .safetensors"},
      {"GGUF", "a GGUF model; save its tensors as .safetensors"},
  };
  for (const auto& [magic, what] : kOthers) {
    if (start.starts_with(magic)) return what;
  }
  return "";
}

absl::Status Unknown(std::span<const std::byte> bytes) {
  if (bytes.empty()) {
    return MakeError(Reason::kBadInput,
                     "an empty file; it needs a JPEG or PNG picture, or arrays "
                     "in .npy or .safetensors");
  }
  const std::string_view other = KnownByAnotherName(wire::AsText(bytes));
  if (!other.empty()) return MakeError(Reason::kBadInput, other);
  const auto start = bytes.first(std::min<size_t>(bytes.size(), 8));
  return MakeError(
      Reason::kBadInput,
      StrCat("neither a JPEG or PNG picture nor arrays in .npy or .safetensors (it starts with ",
             Hex({reinterpret_cast<const uint8_t*>(start.data()), start.size()}), ")"));
}

absl::StatusOr<std::vector<Input>> Open(File file, const InputOptions& options) {
  const std::span<const std::byte> bytes = file->bytes();
  if (LooksLikeJpeg(bytes)) {
    return Picture(std::move(file), ReadJpegHeader(bytes, options.max_pixels), DecodeJpeg, options);
  }
  if (LooksLikePng(bytes)) {
    return Picture(std::move(file), ReadPngHeader(bytes, options.max_pixels), DecodePng, options);
  }
  if (LooksLikeNpy(bytes)) return Npy(std::move(file), options);
  if (LooksLikeSafetensors(bytes)) return Safetensors(std::move(file), options);
  return Unknown(bytes);
}

}  // namespace

absl::StatusOr<std::vector<Input>> OpenInputs(const std::string& path,
                                              const InputOptions& options) {
  absl::StatusOr<File> file = MappedFile::Open(path);
  if (!file.ok()) return file.status();
  absl::StatusOr<std::vector<Input>> inputs = Open(*std::move(file), options);
  if (!inputs.ok()) return Annotate(inputs.status(), path);
  for (Input& input : *inputs) {
    input.file = path;
    input.produce = [path, produce = std::move(input.produce)](std::span<std::byte> out) {
      return Annotate(produce(out), path);
    };
  }
  return inputs;
}

}  // namespace tensorferry::tools
