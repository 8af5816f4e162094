// StrCat and StrAppend that take std::string_view too.
//
//   return MakeError(Reason::kBadAddress, StrCat("address \"", text, "\" has no port"));
//   out = absl::CHexEscape(AbslView(text));
//   std::string_view message = StdView(status.message());
//
// Distributions build Abseil for C++14, where absl::string_view is a class of its own that does not
// convert from or to std::string_view; elsewhere both are the same. Inside tensorferry write StrCat
// without absl::.
// Thread-safety: pure functions.
#ifndef TENSORFERRY_BASE_TEXT_H_
#define TENSORFERRY_BASE_TEXT_H_

#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tensorferry {

inline absl::string_view AbslView(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view StdView(absl::string_view text) { return {text.data(), text.size()}; }

namespace text_internal {

template <typename T>
decltype(auto) Piece(const T& part) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return AbslView(part);
  } else {
    return (part);
  }
}

}  // namespace text_internal

template <typename... Parts>
std::string StrCat(const Parts&... parts) {
  return absl::StrCat(text_internal::Piece(parts)...);
}

template <typename... Parts>
void StrAppend(std::string* out, const Parts&... parts) {
  absl::StrAppend(out, text_internal::Piece(parts)...);
}

}  // namespace tensorferry

#endif  // TENSORFERRY_BASE_TEXT_H_
