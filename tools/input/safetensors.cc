#include "tools/input/safetensors.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "nlohmann/json.hpp"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/wire/bytes.h"
#include "tools/file_io.h"

namespace tensorferry::tools {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxHeader = 100'000'000;
constexpr size_t kPrefix = sizeof(uint64_t);

constexpr std::pair<std::string_view, Element> kDtypes[] = {
    {"BOOL", Element::kBool},     {"U8", Element::kUint8},    {"I8", Element::kInt8},
    {"I16", Element::kInt16},     {"U16", Element::kUint16},  {"F16", Element::kFloat16},
    {"BF16", Element::kBfloat16}, {"I32", Element::kInt32},   {"U32", Element::kUint32},
    {"F32", Element::kFloat32},   {"F64", Element::kFloat64}, {"I64", Element::kInt64},
    {"U64", Element::kUint64},
};

absl::Status Bad(std::string_view what) { return MakeError(Reason::kBadInput, what); }

std::string Quoted(std::string_view name) {
  return StrCat("\"", absl::Utf8SafeCHexEscape(AbslView(name)), "\"");
}

// The parser keeps the last of two equal names, which would hide a tensor: so names are looked at
// while they pass by.
absl::StatusOr<Json> ParseHeader(std::string_view text) {
  std::set<std::string> names;
  std::string twice;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1) {
      const std::string& name = parsed.get_ref<const std::string&>();
      if (!names.insert(name).second) twice = name;
    }
    return true;
  };
  Json header = Json::parse(text, watch, /*allow_exceptions=*/false);
  if (!header.is_object()) return Bad("the header is not a JSON object");
  if (!twice.empty()) return Bad(StrCat("the header names ", Quoted(twice), " twice"));
  return header;
}

// Of a value that is not what it should be, enough to recognise it.
std::string Short(const Json& value) { return value.dump().substr(0, 40); }

std::optional<uint64_t> Unsigned(const Json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  return value.get<uint64_t>();
}

absl::StatusOr<std::vector<uint32_t>> ParseShape(const Json& value) {
  if (!value.is_array()) return Bad("shape is not a list");
  std::vector<uint32_t> shape;
  for (const Json& item : value) {
    const std::optional<uint64_t> dim = Unsigned(item);
    if (!dim.has_value() || *dim > std::numeric_limits<uint32_t>::max()) {
      return Bad(StrCat("dimension ", Short(item), " of the shape is not within 0..4294967295"));
    }
    shape.push_back(static_cast<uint32_t>(*dim));
  }
  return shape;
}

absl::StatusOr<Element> ParseDtypeName(const Json& value) {
  if (!value.is_string()) return Bad("dtype is not a string");
  const std::string& text = value.get_ref<const std::string&>();
  for (const auto& [name, element] : kDtypes) {
    if (name == text) return element;
  }
  return MakeError(Reason::kUnknownDtype,
                   StrCat("dtype ", Quoted(text), " is none of BOOL, U8, I8, I16, U16, F16, BF16, ",
                          "I32, U32, F32, F64, I64, U64; convert it first"));
}

absl::StatusOr<ArraySource> ParseTensor(const Json& entry, std::span<const std::byte> data) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") ||
      !entry.contains("data_offsets")) {
    return Bad("its entry lacks one of dtype, shape, data_offsets");
  }
  ArraySource source;
  const absl::StatusOr<Element> element = ParseDtypeName(entry["dtype"]);
  if (!element.ok()) return element.status();
  source.element = *element;
  absl::StatusOr<std::vector<uint32_t>> shape = ParseShape(entry["shape"]);
  if (!shape.ok()) return shape.status();
  source.shape = *std::move(shape);

  const Json& offsets = entry["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2) return Bad("data_offsets is not [begin, end]");
  const std::optional<uint64_t> begin = Unsigned(offsets[0]), end = Unsigned(offsets[1]);
  if (!begin.has_value() || !end.has_value() || *begin > *end || *end > data.size()) {
    return Bad(StrCat("data_offsets ", Short(offsets), " are not within the ", data.size(),
                      " bytes of data: damaged or truncated"));
  }
  source.bytes = data.subspan(static_cast<size_t>(*begin), static_cast<size_t>(*end - *begin));
  const absl::StatusOr<uint64_t> expected = ArrayBytes(source.shape, source.element);
  if (!expected.ok()) return expected.status();
  if (source.bytes.size() != *expected) {
    return Bad(StrCat("data_offsets ", Short(offsets), " hold ", source.bytes.size(),
                      " bytes, but ", ShapeText(source.shape), " of ", ElementName(source.element),
                      " takes ", *expected));
  }
  return source;
}

// Sorts by place, and checks that each tensor begins where the one before it ended.
absl::Status CheckCover(std::span<const std::byte> data, std::vector<NamedArray>* arrays) {
  std::stable_sort(arrays->begin(), arrays->end(), [](const NamedArray& a, const NamedArray& b) {
    return std::pair(a.source.bytes.data(), a.source.bytes.size()) <
           std::pair(b.source.bytes.data(), b.source.bytes.size());
  });
  size_t covered = 0;
  for (const NamedArray& array : *arrays) {
    const size_t begin = static_cast<size_t>(array.source.bytes.data() - data.data());
    if (begin != covered) {
      return Bad(StrCat("tensor ", Quoted(array.name), " begins at byte ", begin,
                        " of the data, but the one before it ends at ", covered, ": ",
                        begin < covered ? "they overlap" : "there is a gap"));
    }
    covered += array.source.bytes.size();
  }
  if (covered != data.size()) {
    return Bad(StrCat(data.size() - covered, " bytes of data belong to no tensor"));
  }
  return absl::OkStatus();
}

std::string_view SafetensorsName(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return "F32";
    case Dtype::kBfloat16:
      return "BF16";
    case Dtype::kFloat16:
      return "F16";
    case Dtype::kUint8:
      return "U8";
    case Dtype::kInt64:
      return "I64";
    case Dtype::kUint32:
      return "U32";
  }
  return "";
}

}  // namespace

bool LooksLikeSafetensors(std::span<const std::byte> bytes) {
  wire::Reader in(bytes);
  const uint64_t header = in.U64();
  return in.remaining() > 0 && header > 1 && header <= kMaxHeader && in.U8() == '{';
}

absl::StatusOr<std::vector<NamedArray>> ParseSafetensors(std::span<const std::byte> bytes) {
  wire::Reader in(bytes);
  const uint64_t header_bytes = in.U64();
  if (header_bytes > kMaxHeader) {
    return Bad(StrCat("a header of ", header_bytes, " bytes is over the format's ", kMaxHeader));
  }
  if (!in.ok() || header_bytes > in.remaining()) return Bad("truncated within its header");
  const absl::StatusOr<Json> header =
      ParseHeader(wire::AsText(in.Take(static_cast<size_t>(header_bytes))));
  if (!header.ok()) return header.status();

  const std::span<const std::byte> data = in.Rest();
  std::vector<NamedArray> arrays;
  for (const auto& [name, entry] : header->items()) {
    if (name == "__metadata__") continue;
    absl::StatusOr<ArraySource> source = ParseTensor(entry, data);
    if (!source.ok()) return Annotate(source.status(), StrCat("tensor ", Quoted(name)));
    arrays.push_back({name, *std::move(source)});
  }
  if (absl::Status status = CheckCover(data, &arrays); !status.ok()) return status;
  if (arrays.empty()) return Bad("holds no tensor");
  return arrays;
}

absl::Status SaveSafetensors(const std::string& path, const TensorToSave& tensor) {
  const Json entry = {{"dtype", std::string(SafetensorsName(tensor.dtype))},
                      {"shape", std::vector<uint32_t>(tensor.shape.begin(), tensor.shape.end())},
                      {"data_offsets", {uint64_t{0}, uint64_t{tensor.bytes.size()}}}};
  std::string header = Json{{std::string(tensor.name), entry}}.dump(-1, ' ', /*ensure_ascii=*/false,
                                                                    Json::error_handler_t::replace);
  header.resize((header.size() + 7) / 8 * 8, ' ');  // so that readers can map the data aligned
  std::array<std::byte, kPrefix> prefix;
  wire::StoreLe(prefix.data(), uint64_t{header.size()});

  const std::span<const std::byte> parts[] = {prefix, wire::AsBytes(header), tensor.bytes};
  return WriteFile(path, parts);
}

}  // namespace tensorferry::tools
