// Values of settings in text: what is taken prints as a text that means the same, and whatever else
// it is, it is refused by name, on one short line.
#include <string>
#include <string_view>

#include "tensorferry/base/error.h"
#include "tensorferry/base/fuzz_testing.h"
#include "tensorferry/policy/settings.h"

namespace tensorferry {
namespace {

absl::StatusOr<Settings> FromVariable(const SettingSpec& spec, const std::string& text) {
  return ParseSettings({.environment = [&](std::string_view name) -> std::optional<std::string> {
    if (name == spec.variable) return text;
    return std::nullopt;
  }});
}

void Check(const SettingSpec& spec, const std::string& text) {
  const absl::StatusOr<Settings> settings = FromVariable(spec, text);
  if (!settings.ok()) {
    Require(ReasonOf(settings.status()) == Reason::kBadOption);
    const std::string message(settings.status().message());
    Require(message.find(spec.variable) == 0 && message.size() < 800);
    Require(message.find('\n') == std::string::npos);
    Require(message.find(AcceptedForm(spec)) != std::string::npos);
    return;
  }
  // Sizes and times that follow from it hold whatever it is.
  Require(settings->arena_bytes > 0 && settings->arena_bytes <= kMaxArenaBytes);
  Require(settings->landing_bytes > 0 && settings->landing_bytes <= kMaxArenaBytes);
  Require(settings->hold_s >= settings->landing_wait_s);
  Require(settings->slot_ttl_s > settings->hold_s || settings->slot_ttl_s == UINT64_MAX);
  Require(settings->hold() >= Duration::zero() && settings->slot_ttl() >= settings->hold());
  const std::string printed = SettingText(*settings, spec);
  const absl::StatusOr<Settings> again = FromVariable(spec, printed);
  Require(again.ok() && SettingText(*again, spec) == printed);
}

}  // namespace
}  // namespace tensorferry

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const tensorferry::SettingSpec& spec : tensorferry::SettingTable()) {
    if (!spec.variable.empty()) tensorferry::Check(spec, text);
  }
  return 0;
}
