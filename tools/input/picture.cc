#include "tools/input/picture.h"

#include <cstring>

#include "tensorferry/base/convert.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry::tools {
namespace {

template <typename T>
std::span<T> Items(std::byte* at, size_t count) {
  return {reinterpret_cast<T*>(at), count};
}

}  // namespace

absl::Status CheckPictureSize(PictureSize size, uint64_t max_pixels) {
  const auto [width, height] = size;
  if (width == 0 || height == 0) {
    return MakeError(Reason::kBadInput,
                     StrCat("a picture of ", width, " x ", height, " has no pixels"));
  }
  const uint64_t pixels = uint64_t{width} * height;
  if (pixels > max_pixels) {
    return MakeError(Reason::kTooLarge, StrCat("a picture of ", width, " x ", height, " is ",
                                               pixels, " pixels, over the limit of ", max_pixels,
                                               "; if it is really that large, raise --max-pixels"));
  }
  return absl::OkStatus();
}

absl::Status CheckPictureDtype(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
    case Dtype::kBfloat16:
    case Dtype::kFloat16:
    case Dtype::kUint8:
      return absl::OkStatus();
    case Dtype::kInt64:
    case Dtype::kUint32:
      break;
  }
  return MakeError(Reason::kUnknownDtype,
                   StrCat("a picture does not become ", DtypeName(dtype),
                          "; --dtype can be bfloat16, float16, float32, uint8"));
}

PlanarWriter::PlanarWriter(Dtype dtype, PictureSize size, std::span<std::byte> out)
    : dtype_(dtype), width_(size.width), height_(size.height), out_(out) {}

std::byte* PlanarWriter::At(uint32_t channel, uint32_t y) const {
  return out_.data() + (channel * height_ + y) * width_ * ItemBytes(dtype_);
}

void PlanarWriter::Row8(uint32_t y, const uint8_t* rgb) {
  channel8_.resize(width_);
  for (uint32_t c = 0; c < 3; ++c) {
    for (size_t x = 0; x < width_; ++x) channel8_[x] = rgb[3 * x + c];
    std::byte* to = At(c, y);
    switch (dtype_) {
      case Dtype::kFloat32:
        Unorm8ToFloat32(channel8_, Items<float>(to, width_));
        break;
      case Dtype::kBfloat16:
        Unorm8ToBfloat16(channel8_, Items<uint16_t>(to, width_));
        break;
      case Dtype::kFloat16:
        Unorm8ToFloat16(channel8_, Items<uint16_t>(to, width_));
        break;
      default:
        std::memcpy(to, channel8_.data(), width_);
    }
  }
}

void PlanarWriter::Row16(uint32_t y, const uint16_t* rgb) {
  channel16_.resize(width_);
  for (uint32_t c = 0; c < 3; ++c) {
    for (size_t x = 0; x < width_; ++x) channel16_[x] = rgb[3 * x + c];
    std::byte* to = At(c, y);
    switch (dtype_) {
      case Dtype::kFloat32:
        Unorm16ToFloat32(channel16_, Items<float>(to, width_));
        break;
      case Dtype::kBfloat16:
        Unorm16ToBfloat16(channel16_, Items<uint16_t>(to, width_));
        break;
      case Dtype::kFloat16:
        Unorm16ToFloat16(channel16_, Items<uint16_t>(to, width_));
        break;
      default:
        for (size_t x = 0; x < width_; ++x) to[x] = static_cast<std::byte>(channel16_[x] >> 8);
    }
  }
}

}  // namespace tensorferry::tools
