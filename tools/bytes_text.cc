#include "tools/bytes_text.h"

#include <array>
#include <string_view>

#include "absl/strings/str_format.h"
#include "tensorferry/base/text.h"

namespace tensorferry::tools {

std::string BytesText(uint64_t bytes) {
  constexpr std::array<std::string_view, 6> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return StrCat(bytes, " B");
  auto value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  const bool whole = value == static_cast<double>(static_cast<uint64_t>(value));
  return absl::StrFormat("%.*f %s", whole ? 0 : 1, value, AbslView(kUnits.at(unit)));
}

}  // namespace tensorferry::tools
