#include "tools/hex.h"

#include "absl/strings/escaping.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry::tools {
namespace {

int Digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

absl::StatusOr<std::string> FromHex(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (Digit(text[i]) < 0) {
      return MakeError(Reason::kBadOption,
                       StrCat("\"", absl::CHexEscape(AbslView(text.substr(i, 1))), "\" at place ",
                              i + 1, " is no hexadecimal digit"));
    }
  }
  if (text.size() % 2 != 0) {
    return MakeError(Reason::kBadOption,
                     StrCat(text.size(), " hexadecimal digits are no whole number of bytes"));
  }
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    bytes += static_cast<char>(Digit(text[i]) * 16 + Digit(text[i + 1]));
  }
  return bytes;
}

}  // namespace tensorferry::tools
