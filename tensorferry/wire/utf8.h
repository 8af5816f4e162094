// Whether bytes are UTF-8, as strictly as Python's decoder: no overlong forms, no surrogates,
// nothing above U+10FFFF.
//
//   if (!IsUtf8(host)) return MakeError(Reason::kBadIpText, ...);
//
// Thread-safety: pure function.
#ifndef TENSORFERRY_WIRE_UTF8_H_
#define TENSORFERRY_WIRE_UTF8_H_

#include <string_view>

namespace tensorferry::wire {

bool IsUtf8(std::string_view text);

}  // namespace tensorferry::wire

#endif  // TENSORFERRY_WIRE_UTF8_H_
