#include "tensorferry/base/pack.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tensorferry/base/convert.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry {
namespace {

struct Dimension {
  uint64_t size;
  int64_t stride;  // in bytes
};

// As few dimensions as say the same, the innermost last: without those of one element, and with
// neighbours that lie behind one another made one.
std::vector<Dimension> Simplified(const std::vector<Dimension>& dimensions) {
  std::vector<Dimension> out;
  for (size_t i = dimensions.size(); i-- > 0;) {
    const Dimension& d = dimensions[i];
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

std::vector<Dimension> DimensionsOf(const StridedTensor& t) {
  std::vector<Dimension> out(t.shape.size());
  auto packed = static_cast<int64_t>(ItemBytes(t.dtype));
  const int64_t item_bytes = packed;
  for (size_t i = out.size(); i-- > 0;) {
    out[i] = {.size = t.shape[i], .stride = t.strides.empty() ? packed : t.strides[i] * item_bytes};
    packed *= t.shape[i];
  }
  return Simplified(out);
}

std::vector<Dimension> DimensionsOf(const StridedItems& items) {
  std::vector<Dimension> out;
  for (size_t i = 0; i < items.shape.size(); ++i) {
    out.push_back({.size = static_cast<uint64_t>(items.shape[i]), .stride = items.strides[i]});
  }
  return Simplified(out);
}

// Calls `run(first, dimension)` for each run of elements along the innermost dimension, in order.
template <typename Run>
void ForEachRun(const std::byte* from, std::span<const Dimension> dimensions, int64_t item_bytes,
                const Run& run) {
  if (dimensions.empty()) return run(from, Dimension{.size = 1, .stride = item_bytes});
  const Dimension& d = dimensions.front();
  if (dimensions.size() == 1) return run(from, d);
  for (uint64_t i = 0; i < d.size; ++i, from += d.stride) {
    ForEachRun(from, dimensions.subspan(1), item_bytes, run);
  }
}

// What becomes of elements that lie one behind the other.
template <typename From>
using Convert = void (*)(const From* from, size_t count, std::byte* out);

template <typename From, typename To, void (*kConvert)(std::span<const From>, std::span<To>)>
void ConvertRun(const From* from, size_t count, std::byte* out) {
  kConvert(std::span(from, count), std::span(reinterpret_cast<To*>(out), count));
}

// Of the elements of a run, which may be `stride` bytes apart.
template <typename From>
void ConvertStrided(const std::byte* from, const Dimension& d, Convert<From> convert,
                    uint64_t item_bytes, std::byte* out) {
  if (d.stride == sizeof(From)) return convert(reinterpret_cast<const From*>(from), d.size, out);
  // Gathered by pieces that stay in the nearest cache, so that the conversion's loop is vectorised.
  std::array<From, 1024> piece;
  for (uint64_t done = 0; done < d.size;) {
    const size_t count = std::min<uint64_t>(piece.size(), d.size - done);
    for (size_t i = 0; i < count; ++i, from += d.stride) {
      std::memcpy(&piece[i], from, sizeof(From));
    }
    convert(piece.data(), count, out);
    out += count * item_bytes;
    done += count;
  }
}

// The size is known when this is compiled, so that each copy is one move.
template <size_t kBytes>
void CopyStrided(const std::byte* from, const Dimension& d, std::byte* out) {
  for (uint64_t i = 0; i < d.size; ++i, from += d.stride, out += kBytes) {
    std::memcpy(out, from, kBytes);
  }
}

void CopyRun(const std::byte* from, const Dimension& d, uint64_t item_bytes, std::byte* out) {
  if (d.stride == static_cast<int64_t>(item_bytes)) {
    std::memcpy(out, from, d.size * item_bytes);
    return;
  }
  switch (item_bytes) {
    case 1:
      return CopyStrided<1>(from, d, out);
    case 2:
      return CopyStrided<2>(from, d, out);
    case 4:
      return CopyStrided<4>(from, d, out);
    case 8:
      return CopyStrided<8>(from, d, out);
    default:
      break;
  }
  for (uint64_t i = 0; i < d.size; ++i, from += d.stride, out += item_bytes) {
    std::memcpy(out, from, item_bytes);
  }
}

void Copy(const std::byte* from, std::span<const Dimension> dimensions, uint64_t item_bytes,
          std::byte* out) {
  ForEachRun(from, dimensions, static_cast<int64_t>(item_bytes),
             [&](const std::byte* run, const Dimension& d) {
               CopyRun(run, d, item_bytes, out);
               out += d.size * item_bytes;
             });
}

template <typename From>
bool PackAs(const StridedTensor& from, Convert<From> convert, Dtype to, std::byte* out) {
  if (convert == nullptr) return false;
  const uint64_t item_bytes = ItemBytes(to);
  ForEachRun(static_cast<const std::byte*>(from.data), DimensionsOf(from), sizeof(From),
             [&](const std::byte* run, const Dimension& d) {
               ConvertStrided(run, d, convert, item_bytes, out);
               out += d.size * item_bytes;
             });
  return true;
}

Convert<float> FromFloat32(Dtype to) {
  if (to == Dtype::kBfloat16) return ConvertRun<float, uint16_t, Float32ToBfloat16>;
  if (to == Dtype::kFloat16) return ConvertRun<float, uint16_t, Float32ToFloat16>;
  return nullptr;
}

Convert<uint16_t> ToFloat32(Dtype from) {
  if (from == Dtype::kBfloat16) return ConvertRun<uint16_t, float, Bfloat16ToFloat32>;
  if (from == Dtype::kFloat16) return ConvertRun<uint16_t, float, Float16ToFloat32>;
  return nullptr;
}

// False when nobody knows how.
bool PackInto(const StridedTensor& from, Dtype to, std::byte* out) {
  if (from.dtype == to) {
    Copy(static_cast<const std::byte*>(from.data), DimensionsOf(from), ItemBytes(to), out);
    return true;
  }
  if (from.dtype == Dtype::kFloat32) return PackAs(from, FromFloat32(to), to, out);
  return to == Dtype::kFloat32 && PackAs(from, ToFloat32(from.dtype), to, out);
}

}  // namespace

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

bool StridedItems::contiguous() const {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return true;
  const std::vector<Dimension> dimensions = DimensionsOf(*this);
  return dimensions.empty() ||
         (dimensions.size() == 1 && dimensions.front().stride == static_cast<int64_t>(item_bytes));
}

void PackItems(const StridedItems& from, std::byte* out) {
  if (std::find(from.shape.begin(), from.shape.end(), 0) != from.shape.end()) return;
  Copy(from.data, DimensionsOf(from), from.item_bytes, out);
}

}  // namespace tensorferry
