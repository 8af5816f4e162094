#include "tensorferry/policy/setting_values.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "tensorferry/base/contains.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/net.h"
#include "tensorferry/base/text.h"

namespace tensorferry {
namespace {

std::string Word(std::string_view text) {
  return absl::AsciiStrToLower(absl::StripAsciiWhitespace(AbslView(text)));
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
  if (!absl::SimpleAtoi(AbslView(text), &value)) {
    return MakeError(Reason::kBadOption, "is over 18446744073709551615");
  }
  return value;
}

absl::StatusOr<bool> ParseSwitch(std::string_view text) {
  const std::string word = Word(text);
  if (Contains(kOn, word)) return true;
  if (Contains(kOff, word)) return false;
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
  if (Contains(kFloat32, word)) return Dtype::kFloat32;
  if (Contains(kBfloat16, word)) return Dtype::kBfloat16;
  if (Contains(kFloat16, word)) return Dtype::kFloat16;
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
