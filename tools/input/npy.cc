#include "tools/input/npy.h"

#include <charconv>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/wire/bytes.h"

namespace tensorferry::tools {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
// NumPy itself stops at 10,000; a header of numbers only is a few hundred bytes.
constexpr size_t kMaxHeader = 1 << 16;

absl::Status Bad(std::string_view what) { return MakeError(Reason::kBadInput, what); }

struct Header {
  std::string descr;
  bool fortran = false;
  std::vector<uint32_t> shape;
};

// The header is a Python dict of three entries: {'descr': '<f4', 'fortran_order': False,
// 'shape': (3, 4), }. This reads that much Python and no more.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  absl::StatusOr<Header> Parse() {
    if (!Take('{')) return Bad("the header is not a dict");
    while (!Take('}')) {
      const std::optional<std::string_view> key = String();
      if (!key.has_value() || !Take(':')) return Bad("the header is not a dict of strings");
      if (absl::Status status = Value(*key); !status.ok()) return status;
      if (!Take(',') && !Next('}')) return Bad("the header's dict does not end");
    }
    if (!seen_descr_ || !seen_fortran_ || !seen_shape_) {
      return Bad("the header lacks one of descr, fortran_order, shape");
    }
    Blanks();
    if (!text_.empty()) return Bad("the header goes on after its dict");
    return std::move(header_);
  }

 private:
  absl::Status Value(std::string_view key) {
    if (key == "descr" && !std::exchange(seen_descr_, true)) return Descr();
    if (key == "fortran_order" && !std::exchange(seen_fortran_, true)) return Fortran();
    if (key == "shape" && !std::exchange(seen_shape_, true)) return Shape();
    return Bad(StrCat("the header has \"", absl::CHexEscape(AbslView(key)),
                      "\" twice, or it is none of descr, fortran_order, shape"));
  }

  absl::Status Descr() {
    if (Next('[') || Next('(')) {
      return MakeError(Reason::kUnknownDtype,
                       "a structured dtype; save its fields as arrays of their own");
    }
    const std::optional<std::string_view> text = String();
    if (!text.has_value()) return Bad("the header's descr is not a string");
    header_.descr = *text;
    return absl::OkStatus();
  }

  absl::Status Fortran() {
    header_.fortran = Word("True");
    if (header_.fortran || Word("False")) return absl::OkStatus();
    return Bad("the header's fortran_order is neither True nor False");
  }

  absl::Status Shape() {
    if (!Take('(')) return Bad("the header's shape is not a tuple");
    while (!Take(')')) {
      Blanks();
      uint64_t dim = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), dim);
      const size_t digits = static_cast<size_t>(end - text_.data());
      if (error == std::errc::invalid_argument) return Bad("the header's shape is not of numbers");
      if (error != std::errc() || dim > std::numeric_limits<uint32_t>::max()) {
        return Bad(StrCat("dimension ", text_.substr(0, digits),
                          " of the shape is over 4294967295; split the array"));
      }
      text_.remove_prefix(digits);
      if (Next('L')) text_.remove_prefix(1);  // written by Python 2
      header_.shape.push_back(static_cast<uint32_t>(dim));
      if (!Take(',') && !Next(')')) return Bad("the header's shape does not end");
    }
    return absl::OkStatus();
  }

  void Blanks() {
    while (!text_.empty() && (text_[0] == ' ' || text_[0] == '\n' || text_[0] == '\t')) {
      text_.remove_prefix(1);
    }
  }
  bool Next(char c) {
    Blanks();
    return !text_.empty() && text_[0] == c;
  }
  bool Take(char c) {
    const bool next = Next(c);
    if (next) text_.remove_prefix(1);
    return next;
  }
  bool Word(std::string_view word) {
    Blanks();
    const bool next = text_.starts_with(word);
    if (next) text_.remove_prefix(word.size());
    return next;
  }
  std::optional<std::string_view> String() {
    Blanks();
    if (text_.empty() || (text_[0] != '\'' && text_[0] != '"')) return std::nullopt;
    const size_t end = text_.find(text_[0], 1);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view content = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return content;
  }

  std::string_view text_;
  Header header_;
  bool seen_descr_ = false, seen_fortran_ = false, seen_shape_ = false;
};

std::optional<Element> ElementOf(std::string_view kind) {
  constexpr std::pair<std::string_view, Element> kKinds[] = {
      {"b1", Element::kBool},    {"i1", Element::kInt8},    {"u1", Element::kUint8},
      {"i2", Element::kInt16},   {"u2", Element::kUint16},  {"i4", Element::kInt32},
      {"u4", Element::kUint32},  {"i8", Element::kInt64},   {"u8", Element::kUint64},
      {"f2", Element::kFloat16}, {"f4", Element::kFloat32}, {"f8", Element::kFloat64},
  };
  for (const auto& [name, element] : kKinds) {
    if (name == kind) return element;
  }
  return std::nullopt;
}

absl::Status ApplyDescr(std::string_view descr, ArraySource* source) {
  const std::string_view order = descr.substr(0, 1);
  const std::optional<Element> element = ElementOf(descr.empty() ? "" : descr.substr(1));
  if (!element.has_value() || (order != "<" && order != ">" && order != "=" && order != "|")) {
    return MakeError(
        Reason::kUnknownDtype,
        StrCat("dtype \"", absl::CHexEscape(AbslView(descr)),
               "\" is not of plain numbers (bool, int8 to int64, uint8 to uint64, float16 to "
               "float64); convert it, or save bfloat16 as .safetensors"));
  }
  source->element = *element;
  source->big_endian = order == ">";
  return absl::OkStatus();
}

}  // namespace

bool LooksLikeNpy(std::span<const std::byte> bytes) {
  return wire::AsText(bytes).starts_with(kMagic);
}

absl::StatusOr<ArraySource> ParseNpy(std::span<const std::byte> bytes) {
  wire::Reader in(bytes);
  (void)in.Take(kMagic.size());
  const uint8_t version = in.U8();
  (void)in.U8();  // minor
  if (!in.ok()) return Bad("truncated within its header");
  if (version < 1 || version > 3) {
    return Bad(StrCat("version ", int{version}, " of .npy is not 1, 2 or 3; save it again"));
  }
  const uint64_t header_bytes = version == 1 ? in.U16() : in.U32();
  if (!in.ok() || header_bytes > in.remaining()) return Bad("truncated within its header");
  if (header_bytes > kMaxHeader) {
    return Bad(StrCat("a header of ", header_bytes, " bytes is over ", kMaxHeader));
  }
  absl::StatusOr<Header> header =
      HeaderParser(wire::AsText(in.Take(static_cast<size_t>(header_bytes)))).Parse();
  if (!header.ok()) return header.status();

  ArraySource source;
  if (absl::Status status = ApplyDescr(header->descr, &source); !status.ok()) return status;
  source.shape = std::move(header->shape);
  source.fortran = header->fortran;
  source.bytes = in.Rest();
  const absl::StatusOr<uint64_t> expected = ArrayBytes(source.shape, source.element);
  if (!expected.ok()) return expected.status();
  if (source.bytes.size() < *expected) {
    return Bad(StrCat("truncated: ", source.bytes.size(), " of ", *expected, " bytes of shape ",
                      ShapeText(source.shape), " of ", ElementName(source.element)));
  }
  if (source.bytes.size() > *expected) {
    return Bad(StrCat(source.bytes.size() - *expected, " bytes follow the array of ", *expected,
                      " bytes; save one array a file"));
  }
  return source;
}

}  // namespace tensorferry::tools
