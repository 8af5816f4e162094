// The free notification of SMG's workers: the slot key as ASCII decimal.
//
//   std::string text = EncodeNotification(42);          // "42"
//   std::optional<int64_t> key = ParseNotification(text);
//
// As the stock gateway reads it: an optional sign ('-' or '+'), digits, nothing else; blanks, an
// empty text, or a value outside 64 bits are no notification.
// Thread-safety: pure functions.
#ifndef TENSORFERRY_WIRE_NOTIFICATION_H_
#define TENSORFERRY_WIRE_NOTIFICATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tensorferry::wire {

std::string EncodeNotification(int64_t key);
std::optional<int64_t> ParseNotification(std::string_view bytes);

}  // namespace tensorferry::wire

#endif  // TENSORFERRY_WIRE_NOTIFICATION_H_
