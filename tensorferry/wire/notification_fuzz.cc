// Free notifications: a key leads back, and nothing but a sign and digits is one.
#include <algorithm>
#include <string_view>

#include "tensorferry/base/fuzz_testing.h"
#include "tensorferry/wire/notification.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tensorferry::Require;
  using tensorferry::wire::ParseNotification;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto key = ParseNotification(text);
  if (!key) return 0;
  const bool sign = text[0] == '-' || text[0] == '+';
  const std::string_view digits = text.substr(sign ? 1 : 0);
  Require(!digits.empty() &&
          std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; }));
  Require((*key < 0) <= (text[0] == '-'));
  const std::string encoded = tensorferry::wire::EncodeNotification(*key);
  Require(encoded.size() <= text.size() && ParseNotification(encoded) == key);
  return 0;
}
