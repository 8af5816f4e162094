#include "tensorferry/wire/utf8.h"

#include <cstdint>

namespace tensorferry::wire {

bool IsUtf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const auto lead = static_cast<uint8_t>(text[i++]);
    if (lead < 0x80) continue;
    // The range of the first continuation byte is what keeps out overlong forms (e0, f0),
    // surrogates (ed) and code points above U+10FFFF (f4); the Unicode Standard, table 3-7.
    int more = 0;
    uint8_t low = 0x80;
    uint8_t high = 0xbf;
    if (lead >= 0xc2 && lead <= 0xdf) {
      more = 1;
    } else if (lead >= 0xe0 && lead <= 0xef) {
      more = 2;
      if (lead == 0xe0) low = 0xa0;
      if (lead == 0xed) high = 0x9f;
    } else if (lead >= 0xf0 && lead <= 0xf4) {
      more = 3;
      if (lead == 0xf0) low = 0x90;
      if (lead == 0xf4) high = 0x8f;
    } else {
      return false;
    }
    for (; more > 0; --more, low = 0x80, high = 0xbf) {
      if (i == text.size()) return false;
      const auto next = static_cast<uint8_t>(text[i++]);
      if (next < low || next > high) return false;
    }
  }
  return true;
}

}  // namespace tensorferry::wire
