#include "tensorferry/base/pack.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "tensorferry/base/convert.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry {
namespace {

struct Dimension {
  uint64_t size;
  int64_t stride;
};

// As few dimensions as say the same: without those of one element, and with neighbours that lie
// behind one another made one.
std::vector<Dimension> Simplified(const StridedTensor& t) {
  std::vector<Dimension> out;
  int64_t packed = 1;  // the stride where `strides` says nothing
  for (size_t i = t.shape.size(); i-- > 0;) {
    const Dimension d{.size = t.shape[i], .stride = t.strides.empty() ? packed : t.strides[i]};
    packed *= t.shape[i];
    if (d.size == 1) continue;
    if (!out.empty() && d.stride == static_cast<int64_t>(out.back().size) * out.back().stride) {
      out.back().size *= d.size;
    } else {
      out.push_back(d);
    }
  }
  std::reverse(out.begin(), out.end());
  return out;
}

// What becomes of a run of elements that lie one behind the other.
template <typename From>
using Convert = void (*)(const From* from, size_t count, std::byte* out);

template <typename From>
void Copy(const From* from, size_t count, std::byte* out) {
  std::memcpy(out, from, count * sizeof(From));
}

template <typename From, typename To, void (*kConvert)(std::span<const From>, std::span<To>)>
void ConvertRun(const From* from, size_t count, std::byte* out) {
  kConvert(std::span(from, count), std::span(reinterpret_cast<To*>(out), count));
}

template <typename From>
class Packer {
 public:
  Packer(const StridedTensor& tensor, Convert<From> convert, uint64_t item_bytes, std::byte* out)
      : dimensions_(Simplified(tensor)), convert_(convert), item_bytes_(item_bytes), out_(out) {}

  void Pack(const From* from) { Walk(from, 0); }

 private:
  void Walk(const From* from, size_t depth) {
    if (depth == dimensions_.size()) return Run(from, {.size = 1, .stride = 1});
    const Dimension& d = dimensions_[depth];
    if (depth + 1 == dimensions_.size()) return Run(from, d);
    for (uint64_t i = 0; i < d.size; ++i, from += d.stride) Walk(from, depth + 1);
  }

  void Run(const From* from, const Dimension& d) {
    if (d.stride == 1) return Write(from, d.size);
    // Gathered by pieces that stay in the nearest cache, so that the conversion's loop is vectorised.
    std::array<From, 1024> piece;
    for (uint64_t done = 0; done < d.size;) {
      const size_t count = std::min<uint64_t>(piece.size(), d.size - done);
      for (size_t i = 0; i < count; ++i, from += d.stride) piece[i] = *from;
      Write(piece.data(), count);
      done += count;
    }
  }

  void Write(const From* from, size_t count) {
    convert_(from, count, out_);
    out_ += count * item_bytes_;
  }

  const std::vector<Dimension> dimensions_;
  const Convert<From> convert_;
  const uint64_t item_bytes_;
  std::byte* out_;
};

template <typename From>
bool PackAs(const StridedTensor& from, Convert<From> convert, Dtype to, std::byte* out) {
  if (convert == nullptr) return false;
  Packer<From>(from, convert, ItemBytes(to), out).Pack(static_cast<const From*>(from.data));
  return true;
}

Convert<float> FromFloat32(Dtype to) {
  switch (to) {
    case Dtype::kFloat32:
      return Copy<float>;
    case Dtype::kBfloat16:
      return ConvertRun<float, uint16_t, Float32ToBfloat16>;
    case Dtype::kFloat16:
      return ConvertRun<float, uint16_t, Float32ToFloat16>;
    default:
      return nullptr;
  }
}

Convert<uint16_t> FromHalf(Dtype from, Dtype to) {
  if (from == to) return Copy<uint16_t>;
  if (to != Dtype::kFloat32) return nullptr;
  return from == Dtype::kBfloat16 ? ConvertRun<uint16_t, float, Bfloat16ToFloat32>
                                  : ConvertRun<uint16_t, float, Float16ToFloat32>;
}

template <typename From>
Convert<From> Same(Dtype from, Dtype to) {
  return from == to ? Copy<From> : nullptr;
}

bool PackInto(const StridedTensor& from, Dtype to, std::byte* out) {
  switch (from.dtype) {
    case Dtype::kFloat32:
      return PackAs(from, FromFloat32(to), to, out);
    case Dtype::kBfloat16:
    case Dtype::kFloat16:
      return PackAs(from, FromHalf(from.dtype, to), to, out);
    case Dtype::kUint8:
      return PackAs(from, Same<uint8_t>(from.dtype, to), to, out);
    case Dtype::kInt64:
      return PackAs(from, Same<uint64_t>(from.dtype, to), to, out);
    case Dtype::kUint32:
      return PackAs(from, Same<uint32_t>(from.dtype, to), to, out);
  }
  return false;
}

}  // namespace

bool StridedTensor::contiguous() const {
  if (std::find(shape.begin(), shape.end(), 0U) != shape.end()) return true;
  const std::vector<Dimension> dimensions = Simplified(*this);
  return dimensions.empty() || (dimensions.size() == 1 && dimensions.front().stride == 1);
}

absl::Status Pack(const StridedTensor& from, Dtype to, std::span<std::byte> out) {
  if (!from.strides.empty() && from.strides.size() != from.shape.size()) {
    return MakeError(Reason::kBadShape,
                     StrCat(from.strides.size(), " strides do not fit the shape ",
                            ShapeText(from.shape), ": give one for each dimension, or none"));
  }
  // The walk over the source must not overflow either.
  if (const auto bytes = TensorBytes(from.shape, from.dtype); !bytes.ok()) return bytes.status();
  if (absl::Status s = CheckTensorBytes(from.shape, to, out.size()); !s.ok()) return s;
  if (out.empty()) return absl::OkStatus();
  if (PackInto(from, to, out.data())) return absl::OkStatus();
  return MakeError(Reason::kUnknownDtype,
                   StrCat(DtypeName(from.dtype), " is not converted to ", DtypeName(to),
                          ": only float32, bfloat16 and float16 are, float32 being one of both"));
}

}  // namespace tensorferry
