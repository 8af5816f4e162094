#include "tools/input/jpeg.h"

#include <turbojpeg.h>

#include <memory>
#include <new>
#include <string_view>
#include <type_traits>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry::tools {
namespace {

struct Destroy {
  void operator()(void* handle) const { tjDestroy(handle); }
};
using Decoder = std::unique_ptr<std::remove_pointer_t<tjhandle>, Destroy>;

const unsigned char* Data(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

absl::Status NoMemory() { return MakeError(Reason::kNoMemory, "no memory for a JPEG decoder"); }

absl::Status Damaged(tjhandle decoder) {
  return MakeError(Reason::kBadInput, StrCat("a damaged JPEG picture (", tjGetErrorStr2(decoder),
                                             "); fetch it again, or open and save it anew"));
}

}  // namespace

bool LooksLikeJpeg(std::span<const std::byte> bytes) {
  return bytes.size() >= 3 && bytes[0] == std::byte{0xff} && bytes[1] == std::byte{0xd8} &&
         bytes[2] == std::byte{0xff};
}

absl::StatusOr<PictureSize> ReadJpegHeader(std::span<const std::byte> bytes, uint64_t max_pixels) {
  const Decoder decoder(tjInitDecompress());
  if (decoder == nullptr) return NoMemory();
  int width = 0, height = 0, subsampling = 0, colorspace = 0;
  if (tjDecompressHeader3(decoder.get(), Data(bytes), bytes.size(), &width, &height, &subsampling,
                          &colorspace) != 0) {
    return Damaged(decoder.get());
  }
  if (width == 0) {
    return MakeError(Reason::kBadInput, "a JPEG file that ends before its picture; fetch it again");
  }
  if (colorspace == TJCS_CMYK || colorspace == TJCS_YCCK) {
    return MakeError(Reason::kBadInput, "a CMYK JPEG picture; save it as RGB first");
  }
  const PictureSize size = {static_cast<uint32_t>(width), static_cast<uint32_t>(height)};
  if (absl::Status status = CheckPictureSize(size, max_pixels); !status.ok()) return status;
  return size;
}

absl::Status DecodeJpeg(std::span<const std::byte> bytes, PictureSize size, Dtype dtype,
                        std::span<std::byte> out) {
  const Decoder decoder(tjInitDecompress());
  if (decoder == nullptr) return NoMemory();
  const size_t row = size_t{3} * size.width;
  const std::unique_ptr<uint8_t[]> rgb(new (std::nothrow) uint8_t[row * size.height]);
  if (rgb == nullptr) {
    return MakeError(Reason::kNoMemory,
                     StrCat("no memory for the picture's ", row * size.height, " bytes"));
  }
  // A damaged picture only warns, and its missing part would be gray. Thousands of scans in a small
  // file would take minutes.
  constexpr int kFlags = TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS;
  if (tjDecompress2(decoder.get(), Data(bytes), bytes.size(), rgb.get(),
                    static_cast<int>(size.width), 0, static_cast<int>(size.height), TJPF_RGB,
                    kFlags) != 0) {
    return Damaged(decoder.get());
  }
  PlanarWriter writer(dtype, size, out);
  for (uint32_t y = 0; y < size.height; ++y) writer.Row8(y, rgb.get() + y * row);
  return absl::OkStatus();
}

}  // namespace tensorferry::tools
