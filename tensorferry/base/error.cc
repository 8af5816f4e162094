#include "tensorferry/base/error.h"

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/cord.h"
#include "tensorferry/base/text.h"

namespace tensorferry {
namespace {

constexpr absl::string_view kPayloadUrl = "tensorferry/reason";

struct Entry {
  Reason reason;
  std::string_view name;
  absl::StatusCode code;
  bool retryable;
  std::string_view meaning;
};

constexpr Entry kTable[] = {
#define TENSORFERRY_X(id, number, name, code, retryable, meaning) \
  {Reason::id, name, absl::StatusCode::k##code, retryable, meaning},
    TENSORFERRY_REASONS(TENSORFERRY_X)
#undef TENSORFERRY_X
};

// By the value of absl::StatusCode.
constexpr std::string_view kCodeNames[] = {
    "ok",        "cancelled",      "unknown",           "invalid_argument",   "deadline_exceeded",
    "not_found", "already_exists", "permission_denied", "resource_exhausted", "failed_precondition",
    "aborted",   "out_of_range",   "unimplemented",     "internal",           "unavailable",
    "data_loss", "unauthenticated"};
constexpr size_t kUnknownCode = static_cast<size_t>(absl::StatusCode::kUnknown);

const Entry& Find(Reason reason) {
  for (const Entry& e : kTable) {
    if (e.reason == reason) return e;
  }
  return kTable[std::size(kTable) - 1];
}

}  // namespace

std::string_view ReasonName(Reason reason) { return Find(reason).name; }
std::string_view ReasonMeaning(Reason reason) { return Find(reason).meaning; }
bool IsRetryable(Reason reason) { return Find(reason).retryable; }

std::optional<Reason> ReasonFromName(std::string_view name) {
  for (const Entry& e : kTable) {
    if (e.name == name) return e.reason;
  }
  return std::nullopt;
}

std::optional<Reason> ReasonFromNumber(uint16_t number) {
  for (const Entry& e : kTable) {
    if (static_cast<uint16_t>(e.reason) == number) return e.reason;
  }
  return std::nullopt;
}

absl::Status MakeError(Reason reason, std::string_view message) {
  const Entry& e = Find(reason);
  absl::Status status(e.code, AbslView(message));
  status.SetPayload(kPayloadUrl, absl::Cord(AbslView(e.name)));
  return status;
}

absl::Status SystemError(int errno_value, std::string_view what) {
  Reason reason = Reason::kSystem;
  switch (errno_value) {
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case ENOSPC:
    case EAGAIN:
      reason = Reason::kNoMemory;
      break;
    case EADDRINUSE:
      reason = Reason::kAddressInUse;
      break;
    default:
      break;
  }
  return MakeError(reason, StrCat(what, ": ", std::strerror(errno_value)));
}

std::optional<Reason> ReasonOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayloadUrl);
  if (!payload.has_value()) return std::nullopt;
  return ReasonFromName(std::string(*payload));
}

std::string_view ReasonNameOf(const absl::Status& status) {
  if (status.ok()) return "ok";
  if (const auto reason = ReasonOf(status)) return ReasonName(*reason);
  const auto code = static_cast<size_t>(status.code());
  return kCodeNames[code < std::size(kCodeNames) ? code : kUnknownCode];
}

bool IsRetryable(const absl::Status& status) {
  const auto reason = ReasonOf(status);
  return reason.has_value() && IsRetryable(*reason);
}

absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  absl::Status out(status.code(), StrCat(context, ": ", status.message()));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { out.SetPayload(url, payload); });
  return out;
}

}  // namespace tensorferry
