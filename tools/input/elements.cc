#include "tools/input/elements.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "tensorferry/base/convert.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry::tools {
namespace {

struct Entry {
  std::string_view name;
  uint64_t bytes;
  std::optional<Dtype> travels_as;
};

constexpr Entry kTable[] = {
    {"bool", 1, std::nullopt},         {"int8", 1, std::nullopt},
    {"uint8", 1, Dtype::kUint8},       {"int16", 2, std::nullopt},
    {"uint16", 2, std::nullopt},       {"int32", 4, std::nullopt},
    {"uint32", 4, Dtype::kUint32},     {"int64", 8, Dtype::kInt64},
    {"uint64", 8, std::nullopt},       {"float16", 2, Dtype::kFloat16},
    {"bfloat16", 2, Dtype::kBfloat16}, {"float32", 4, Dtype::kFloat32},
    {"float64", 8, std::nullopt},
};

const Entry& Find(Element element) { return kTable[static_cast<size_t>(element)]; }

constexpr Dtype kOfOption[] = {Dtype::kFloat32, Dtype::kBfloat16, Dtype::kFloat16, Dtype::kUint8};

bool Converts(Element from, Dtype to) {
  if (Find(from).travels_as == to) return true;
  const bool to_float = to == Dtype::kFloat32 || to == Dtype::kBfloat16 || to == Dtype::kFloat16;
  switch (from) {
    case Element::kBool:
      return to_float || to == Dtype::kUint8;
    case Element::kInt8:
    case Element::kUint8:
    case Element::kFloat16:
    case Element::kBfloat16:
    case Element::kFloat32:
    case Element::kFloat64:
      return to_float;
    case Element::kInt16:
    case Element::kUint16:
      return to == Dtype::kFloat32;
    case Element::kInt32:
    case Element::kUint32:
    case Element::kInt64:
    case Element::kUint64:
      return false;
  }
  return false;
}

std::string WaysOut(Element element) {
  std::string list;
  for (const Dtype dtype : kOfOption) {
    if (Converts(element, dtype)) StrAppend(&list, list.empty() ? "" : ", ", DtypeName(dtype));
  }
  if (!list.empty()) return StrCat("--dtype can be ", list);
  return Find(element).travels_as.has_value() ? "without --dtype it travels as it is"
                                              : "save it as int64, uint32 or a float dtype first";
}

// Enough elements to make the switches below cheap, few enough to stay in the L1 cache.
constexpr size_t kChunk = 1024;

template <typename T>
using Chunk = std::array<T, kChunk>;

// Walks an array in row-major order, whatever order its bytes are in.
class Walk {
 public:
  explicit Walk(const ArraySource& source) : source_(source), item_(ElementBytes(source.element)) {
    if (!source.fortran) return;
    uint64_t stride = item_;
    for (const uint32_t dim : source.shape) {
      strides_.push_back(stride);
      stride *= dim;
    }
    index_.resize(source.shape.size());
  }

  // The next `count` elements, in the machine's own byte order.
  void Next(size_t count, std::byte* to) {
    if (!source_.fortran) {
      std::memcpy(to, source_.bytes.data() + offset_, count * item_);
      offset_ += count * item_;
    } else {
      for (size_t i = 0; i < count; ++i) {
        std::memcpy(to + i * item_, source_.bytes.data() + offset_, item_);
        Advance();
      }
    }
    if (source_.big_endian && item_ > 1) {
      for (size_t i = 0; i < count; ++i) std::reverse(to + i * item_, to + (i + 1) * item_);
    }
  }

 private:
  void Advance() {
    for (size_t d = index_.size(); d-- > 0;) {
      offset_ += strides_[d];
      if (++index_[d] < source_.shape[d]) return;
      offset_ -= strides_[d] * source_.shape[d];
      index_[d] = 0;
    }
  }

  const ArraySource& source_;
  const uint64_t item_;
  uint64_t offset_ = 0;
  std::vector<uint64_t> strides_;
  std::vector<uint32_t> index_;
};

template <typename T>
void Widen(const std::byte* from, size_t count, Chunk<float>* to) {
  Chunk<T> values;
  std::memcpy(values.data(), from, count * sizeof(T));
  std::copy_n(values.begin(), count, to->begin());
}

// Exact: every element type that converts, but for float64, fits a float32.
void WidenToFloat32(Element element, const std::byte* from, size_t count, Chunk<float>* to) {
  Chunk<uint16_t> half;
  switch (element) {
    case Element::kBool:
      for (size_t i = 0; i < count; ++i) (*to)[i] = from[i] != std::byte{0} ? 1.0f : 0.0f;
      return;
    case Element::kInt8:
      return Widen<int8_t>(from, count, to);
    case Element::kUint8:
      return Widen<uint8_t>(from, count, to);
    case Element::kInt16:
      return Widen<int16_t>(from, count, to);
    case Element::kUint16:
      return Widen<uint16_t>(from, count, to);
    case Element::kFloat16:
      std::memcpy(half.data(), from, count * sizeof(uint16_t));
      return Float16ToFloat32(std::span(half).first(count), std::span(*to).first(count));
    case Element::kBfloat16:
      std::memcpy(half.data(), from, count * sizeof(uint16_t));
      return Bfloat16ToFloat32(std::span(half).first(count), std::span(*to).first(count));
    default:
      return Widen<float>(from, count, to);
  }
}

void ConvertFloat64(const std::byte* from, size_t count, Dtype to, std::byte* out) {
  Chunk<double> values;
  std::memcpy(values.data(), from, count * sizeof(double));
  if (to == Dtype::kFloat32) {
    Chunk<float> single;
    std::copy_n(values.begin(), count, single.begin());
    std::memcpy(out, single.data(), count * sizeof(float));
    return;
  }
  Chunk<uint16_t> half;
  const auto convert = to == Dtype::kBfloat16 ? Float64ToBfloat16 : Float64ToFloat16;
  convert(std::span(values).first(count), std::span(half).first(count));
  std::memcpy(out, half.data(), count * sizeof(uint16_t));
}

void ConvertFloat32(const Chunk<float>& values, size_t count, Dtype to, std::byte* out) {
  if (to == Dtype::kFloat32) {
    std::memcpy(out, values.data(), count * sizeof(float));
    return;
  }
  Chunk<uint16_t> half;
  const auto convert = to == Dtype::kBfloat16 ? Float32ToBfloat16 : Float32ToFloat16;
  convert(std::span(values).first(count), std::span(half).first(count));
  std::memcpy(out, half.data(), count * sizeof(uint16_t));
}

void ConvertChunk(Element from, const std::byte* in, size_t count, Dtype to, std::byte* out) {
  if (from == Element::kBool && to == Dtype::kUint8) {
    for (size_t i = 0; i < count; ++i) out[i] = std::byte{in[i] != std::byte{0}};
  } else if (from == Element::kFloat64) {
    ConvertFloat64(in, count, to, out);
  } else {
    Chunk<float> values;
    WidenToFloat32(from, in, count, &values);
    ConvertFloat32(values, count, to, out);
  }
}

}  // namespace

std::string_view ElementName(Element element) { return Find(element).name; }
uint64_t ElementBytes(Element element) { return Find(element).bytes; }

absl::StatusOr<uint64_t> ArrayBytes(std::span<const uint32_t> shape, Element element) {
  if (std::find(shape.begin(), shape.end(), 0u) != shape.end()) return 0;
  uint64_t bytes = ElementBytes(element);
  for (const uint32_t dim : shape) {
    if (__builtin_mul_overflow(bytes, uint64_t{dim}, &bytes)) {
      return MakeError(Reason::kBadInput, StrCat("shape ", ShapeText(shape), " of ",
                                                 ElementName(element), " is over 2^64 bytes"));
    }
  }
  return bytes;
}

absl::StatusOr<Dtype> ChooseDtype(Element element, std::optional<Dtype> wanted) {
  if (wanted.has_value()) {
    if (Converts(element, *wanted)) return *wanted;
    return MakeError(Reason::kUnknownDtype,
                     StrCat(ElementName(element), " does not become ", DtypeName(*wanted),
                            " without loss; ", WaysOut(element)));
  }
  if (const std::optional<Dtype> dtype = Find(element).travels_as) return *dtype;
  return MakeError(
      Reason::kUnknownDtype,
      StrCat("dtype ", ElementName(element),
             " is none of float32, bfloat16, float16, uint8, int64, uint32; ", WaysOut(element)));
}

void ProduceArray(const ArraySource& source, Dtype dtype, std::span<std::byte> out) {
  if (out.empty()) return;
  const bool same = Find(source.element).travels_as == dtype;
  if (same && !source.fortran && !source.big_endian) {
    std::memcpy(out.data(), source.bytes.data(), out.size());
    return;
  }
  const uint64_t total = out.size() / ItemBytes(dtype);
  Walk walk(source);
  alignas(8) std::array<std::byte, kChunk * 8> raw;
  for (uint64_t done = 0; done < total;) {
    const size_t count = std::min<uint64_t>(kChunk, total - done);
    std::byte* to = out.data() + done * ItemBytes(dtype);
    if (same) {
      walk.Next(count, to);
    } else {
      walk.Next(count, raw.data());
      ConvertChunk(source.element, raw.data(), count, dtype, to);
    }
    done += count;
  }
}

}  // namespace tensorferry::tools
