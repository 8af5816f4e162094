#include "tensorferry/wire/notification.h"

#include <charconv>
#include <system_error>

namespace tensorferry::wire {

std::string EncodeNotification(int64_t key) { return std::to_string(key); }

std::optional<int64_t> ParseNotification(std::string_view bytes) {
  if (bytes.starts_with('+')) {
    bytes.remove_prefix(1);
    if (bytes.starts_with('-')) return std::nullopt;
  }
  int64_t key = 0;
  const char* const end = bytes.data() + bytes.size();
  const auto [stop, error] = std::from_chars(bytes.data(), end, key);
  if (error != std::errc() || stop != end) return std::nullopt;
  return key;
}

}  // namespace tensorferry::wire
