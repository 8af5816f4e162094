#include "tensorferry/engine/file/shm_name.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry::engine {
namespace {

constexpr size_t kRandomDigits = 16;
constexpr size_t kMaxNameBytes = 255;  // the kernel's NAME_MAX

// Takes a decimal number off the front, if there is one that fits.
template <class Number>
std::optional<Number> TakeNumber(std::string_view* text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc()) return std::nullopt;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return value;
}

bool TakeDash(std::string_view* text) {
  if (!text->starts_with('-')) return false;
  text->remove_prefix(1);
  return true;
}

bool IsRandomPart(std::string_view text) {
  return text.size() == kRandomDigits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

absl::Status Bad(std::string_view name, std::string_view why) {
  return MakeError(Reason::kBadDescriptor,
                   StrCat("the file name \"", absl::CHexEscape(AbslView(name.substr(0, 64))),
                          "\" is not read: ", why));
}

}  // namespace

ShmName ParseShmName(std::string_view name) {
  if (!name.starts_with(kShmPrefix)) return {};
  std::string_view rest = name.substr(kShmPrefix.size());
  constexpr std::string_view kProbe = "probe-";
  if (rest.starts_with(kProbe)) {
    rest.remove_prefix(kProbe.size());
    const auto pid = TakeNumber<uint32_t>(&rest);
    return pid && rest.empty() ? ShmName{ShmName::Kind::kProbe, *pid} : ShmName{};
  }
  const auto pid = TakeNumber<uint32_t>(&rest);
  if (!pid || (!rest.empty() && !rest.starts_with('-'))) return {};
  const bool ours = TakeDash(&rest) && TakeNumber<uint64_t>(&rest) && TakeDash(&rest) &&
                    TakeNumber<uint64_t>(&rest) && TakeDash(&rest) && IsRandomPart(rest);
  return {ours ? ShmName::Kind::kOurs : ShmName::Kind::kStock, *pid};
}

std::string MakeShmName(const ShmNameParts& parts) {
  return absl::StrFormat("%s%d-%d-%d-%016x", AbslView(kShmPrefix), parts.pid, parts.unix_ns,
                         parts.counter, parts.random);
}

absl::StatusOr<std::string> CheckShmName(std::string_view name) {
  const size_t begin = name.find_first_not_of('/');
  const std::string_view bare = begin == std::string_view::npos ? "" : name.substr(begin);
  if (bare.empty()) return Bad(name, "it is empty");
  if (bare.find('/') != std::string_view::npos) return Bad(name, "it names a path, not a file");
  if (bare.find('\0') != std::string_view::npos) return Bad(name, "it holds a NUL");
  if (bare.size() > kMaxNameBytes) return Bad(name, "it is longer than a file name can be");
  // So "." and ".." are out, too.
  if (!bare.starts_with(kShmPrefix)) {
    return Bad(name, StrCat("gateways write names that start with ", kShmPrefix));
  }
  return std::string(bare);
}

}  // namespace tensorferry::engine
