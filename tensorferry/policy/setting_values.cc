#include "tensorferry/policy/setting_values.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/net.h"
#include "tensorferry/base/text.h"

namespace tensorferry {
namespace {

std::string Word(std::string_view text) {
  return absl::AsciiStrToLower(absl::StripAsciiWhitespace(AbslView(text)));
}

template <size_t N>
bool IsOneOf(const std::string& word, const std::string_view (&words)[N]) {
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

constexpr std::string_view kOn[] = {"1", "true", "yes", "on"};
constexpr std::string_view kOff[] = {"0", "false", "no", "off"};
constexpr std::string_view kFloat32[] = {"float32", "fp32", "f32"};
constexpr std::string_view kBfloat16[] = {"bfloat16", "bf16"};
constexpr std::string_view kFloat16[] = {"float16", "fp16", "f16", "half"};

}  // namespace

std::string_view SendMetadataName(SendMetadata value) {
  switch (value) {
    case SendMetadata::kAuto:
      return "auto";
    case SendMetadata::kOn:
      return "on";
    case SendMetadata::kOff:
      return "off";
  }
  return "";
}

absl::StatusOr<uint64_t> ParseUnsigned(std::string_view text) {
  if (text.empty() || !std::all_of(text.begin(), text.end(), absl::ascii_isdigit)) {
    return MakeError(Reason::kBadOption, "is not a whole number in decimal digits");
  }
  uint64_t value = 0;
  for (const char c : text) {
    const auto digit = static_cast<uint64_t>(c - '0');
    if (value > (UINT64_MAX - digit) / 10) {
      return MakeError(Reason::kBadOption, "is over 18446744073709551615");
    }
    value = value * 10 + digit;
  }
  return value;
}

absl::StatusOr<bool> ParseSwitch(std::string_view text) {
  const std::string word = Word(text);
  if (IsOneOf(word, kOn)) return true;
  if (IsOneOf(word, kOff)) return false;
  return MakeError(Reason::kBadOption, "is neither on nor off");
}

absl::StatusOr<SendMetadata> ParseSendMetadata(std::string_view text) {
  if (Word(text) == "auto") return SendMetadata::kAuto;
  const absl::StatusOr<bool> on = ParseSwitch(text);
  if (!on.ok()) return MakeError(Reason::kBadOption, "is neither auto nor on nor off");
  return *on ? SendMetadata::kOn : SendMetadata::kOff;
}

absl::StatusOr<Dtype> ParseEncoderDtype(std::string_view text) {
  const std::string word = Word(text);
  if (IsOneOf(word, kFloat32)) return Dtype::kFloat32;
  if (IsOneOf(word, kBfloat16)) return Dtype::kBfloat16;
  if (IsOneOf(word, kFloat16)) return Dtype::kFloat16;
  return MakeError(Reason::kBadOption, "is no dtype that an encoder is fed with");
}

absl::StatusOr<std::string> ParseListenIp(std::string_view text) {
  const std::string_view host = StdView(absl::StripAsciiWhitespace(AbslView(text)));
  if (host.empty()) return std::string();
  const absl::StatusOr<SocketAddress> address = SocketAddress::ParseHost(host, 1);
  if (!address.ok()) return MakeError(Reason::kBadOption, "is no numeric address");
  if (!address->CheckDialable().ok()) {
    return MakeError(Reason::kBadOption, "is no address that a worker can dial");
  }
  return address->HostText();
}

}  // namespace tensorferry
