// The values of settings in text: one strict parser for configuration, flags and environment.
//
//   absl::StatusOr<uint64_t> slots = ParseUnsigned("64");       // no sign, blank, point, underscore
//   absl::StatusOr<bool> on = ParseSwitch(" Yes ");
//   absl::StatusOr<std::string> ip = ParseListenIp("10.0.0.5");
//
// Peers in several languages read the same variables, each with its own idea of a number: what one
// takes and another replaces by a default makes two ends of different sizes. So what any of them
// would refuse is refused here. Errors are kBadOption and say what the text is, not where it stood.
// Thread-safety: pure functions.
#ifndef TENSORFERRY_POLICY_SETTING_VALUES_H_
#define TENSORFERRY_POLICY_SETTING_VALUES_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/dtype.h"
#include "tensorferry/base/export.h"

namespace tensorferry {

// Whether a worker sends its own metadata to a gateway before it reads: kAuto, when that is local.
enum class SendMetadata : uint8_t { kAuto, kOn, kOff };
// "auto", "on", "off".
TENSORFERRY_EXPORT std::string_view SendMetadataName(SendMetadata value);

// Decimal digits and nothing else, up to 2^64-1.
TENSORFERRY_EXPORT absl::StatusOr<uint64_t> ParseUnsigned(std::string_view text);
// 1, true, yes, on; 0, false, no, off; trimmed, any case.
TENSORFERRY_EXPORT absl::StatusOr<bool> ParseSwitch(std::string_view text);
// As ParseSwitch, and "auto".
TENSORFERRY_EXPORT absl::StatusOr<SendMetadata> ParseSendMetadata(std::string_view text);
// Of an encoder's input: float32, fp32, f32; bfloat16, bf16; float16, fp16, f16, half; trimmed, any
// case.
TENSORFERRY_EXPORT absl::StatusOr<Dtype> ParseEncoderDtype(std::string_view text);
// A numeric address that workers can dial; blanks around it are dropped, and it is given back as it
// is written into descriptors. Nothing but blanks: "".
TENSORFERRY_EXPORT absl::StatusOr<std::string> ParseListenIp(std::string_view text);

// a + b, a * b, which stay at 2^64-1 instead of overflowing.
constexpr uint64_t AddCapped(uint64_t a, uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}
constexpr uint64_t MultiplyCapped(uint64_t a, uint64_t b) {
  return a != 0 && b > UINT64_MAX / a ? UINT64_MAX : a * b;
}
// Stays at Duration::max() instead of overflowing.
constexpr Duration SecondsCapped(uint64_t seconds) {
  constexpr auto kMost =
      static_cast<uint64_t>(std::chrono::floor<std::chrono::seconds>(Duration::max()).count());
  return seconds > kMost ? Duration::max() : std::chrono::seconds(seconds);
}

}  // namespace tensorferry

#endif  // TENSORFERRY_POLICY_SETTING_VALUES_H_
