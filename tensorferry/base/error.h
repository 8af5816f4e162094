// Errors with a stable name: an absl::Status that also carries a Reason.
//
//   return MakeError(Reason::kBadToken, "lease 7: the token of the descriptor is not the lease's");
//   ...
//   if (ReasonOf(status) == Reason::kTimedOut) ...
//   if (IsRetryable(status)) ...
//
// The names in the table below are a contract: they appear in logs, JSON ("code"), metric labels,
// on the wire between our own peers, and in docs/errors.md. Add to the table, never rename.
// Thread-safety: pure functions.
#ifndef TENSORFERRY_BASE_ERROR_H_
#define TENSORFERRY_BASE_ERROR_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "tensorferry/base/export.h"

namespace tensorferry {

// X(enumerator, number on the wire, name, canonical code, retryable, meaning)
// Retryable means: the same bytes, asked for again later or by another lane, may well arrive.
#define TENSORFERRY_REASONS(X)                                                                    \
  X(kBadDescriptor, 1, "bad_descriptor", InvalidArgument, false,                                  \
    "the bytes are not a descriptor, or were changed on the way")                                 \
  X(kUnknownVersion, 2, "unknown_version", InvalidArgument, false,                                \
    "the peer speaks a newer version of the format")                                              \
  X(kUnknownMagic, 3, "unknown_magic", InvalidArgument, false,                                    \
    "starts like an SMG descriptor, of a version that is not known here")                         \
  X(kTooShort, 4, "too_short", InvalidArgument, false, "the descriptor ends early")               \
  X(kBadIpText, 5, "bad_ip_text", InvalidArgument, false, "the descriptor's host is not UTF-8")   \
  X(kKeyMismatch, 6, "key_mismatch", InvalidArgument, false,                                      \
    "the descriptor belongs to another key (room) than the request")                              \
  X(kLegacyNeedsKey, 7, "legacy_needs_key", InvalidArgument, false,                               \
    "a descriptor without a key, and the caller named none")                                      \
  X(kBadAddress, 8, "bad_address", InvalidArgument, false,                                        \
    "an address is empty, a wildcard, has no port, or does not parse")                            \
  X(kBadGeneration, 9, "bad_generation", InvalidArgument, false,                                  \
    "the generation is zero, or the bytes carry another one")                                     \
  X(kSizeMismatch, 10, "size_mismatch", InvalidArgument, false,                                   \
    "byte count, shape and dtype disagree")                                                       \
  X(kBadShape, 11, "bad_shape", InvalidArgument, false, "the shape's product overflows")          \
  X(kUnknownDtype, 12, "unknown_dtype", InvalidArgument, false, "a dtype outside the closed set") \
  X(kUnknownTransport, 13, "unknown_transport", InvalidArgument, false,                           \
    "the handle names a descriptor kind that is not known here")                                  \
  X(kTooLarge, 14, "too_large", InvalidArgument, false,                                           \
    "the tensor is larger than the memory that could ever hold it")                               \
  X(kNoPayload, 15, "no_payload", InvalidArgument, false,                                         \
    "the tensor carries neither bytes nor a handle")                                              \
  X(kBadToken, 20, "bad_token", PermissionDenied, false, "the token is not the lease's")          \
  X(kLeaseEnded, 21, "lease_ended", NotFound, false,                                              \
    "the lease was read by all its readers, cancelled, expired, or never was")                    \
  X(kWrongInstance, 22, "wrong_instance", FailedPrecondition, false,                              \
    "another gateway process than the descriptor's answers; the bytes are gone")                  \
  X(kOutOfRange, 23, "out_of_range", OutOfRange, false,                                           \
    "offset and length reach beyond the lease")                                                   \
  X(kUidMismatch, 24, "uid_mismatch", PermissionDenied, false,                                    \
    "gateway and worker run as different users; mapping is refused")                              \
  X(kOtherHost, 25, "other_host", FailedPrecondition, false,                                      \
    "the gateway is on another host, or its socket cannot be seen from here")                     \
  X(kNotAllowed, 26, "not_allowed", PermissionDenied, false,                                      \
    "the gateway's address is outside the worker's allow-list")                                   \
  X(kClaimLimit, 27, "claim_limit", ResourceExhausted, true,                                      \
    "this worker already holds its share of the gateway's arena as views")                        \
  X(kNoCommonWay, 28, "no_common_way", FailedPrecondition, false,                                 \
    "no transport that the descriptor offers is enabled here")                                    \
  X(kUnreachable, 40, "unreachable", Unavailable, true, "no connection to the gateway")           \
  X(kPeerClosed, 41, "peer_closed", Unavailable, true, "the gateway closed in mid-transfer")      \
  X(kBusy, 42, "busy", Unavailable, true, "the gateway has no room for another connection")       \
  X(kTimedOut, 43, "timed_out", DeadlineExceeded, true, "the deadline passed")                    \
  X(kCancelled, 44, "cancelled", Cancelled, false, "the caller gave up")                          \
  X(kLandingFull, 45, "landing_full", ResourceExhausted, true,                                    \
    "no landing space came free before the deadline")                                             \
  X(kProtocol, 46, "protocol_error", Internal, false, "the peer's messages make no sense")        \
  X(kChecksum, 47, "checksum_mismatch", DataLoss, true, "the bytes differ from what was staged")  \
  X(kArenaFull, 60, "arena_full", ResourceExhausted, true, "no room left in the arena")           \
  X(kDuplicateKey, 61, "duplicate_key", AlreadyExists, false, "a live lease has this key")        \
  X(kShutDown, 62, "shut_down", Unavailable, false, "the exporter or puller is closing")          \
  X(kAddressInUse, 63, "address_in_use", FailedPrecondition, false, "the port is taken")          \
  X(kNoMemory, 64, "no_memory", ResourceExhausted, false,                                         \
    "the system or a limit refused memory, a mapping or a descriptor")                            \
  X(kLaneOff, 65, "lane_off", FailedPrecondition, false, "the lane is switched off or missing")   \
  X(kBadOption, 67, "bad_option", InvalidArgument, false, "a setting is outside its range")       \
  X(kModality, 68, "unsupported_modality", InvalidArgument, false,                                \
    "workers of this engine take no inputs of this kind")                                         \
  X(kSystem, 66, "system_error", Internal, false, "a system call failed")                         \
  X(kBadInput, 80, "bad_input", InvalidArgument, false, "a file is not what it should be")

enum class Reason : uint16_t {
#define TENSORFERRY_X(id, number, name, code, retryable, meaning) id = number,
  TENSORFERRY_REASONS(TENSORFERRY_X)
#undef TENSORFERRY_X
};

// "bad_token" and so on.
TENSORFERRY_EXPORT std::string_view ReasonName(Reason reason);
TENSORFERRY_EXPORT std::string_view ReasonMeaning(Reason reason);
TENSORFERRY_EXPORT std::optional<Reason> ReasonFromName(std::string_view name);
TENSORFERRY_EXPORT std::optional<Reason> ReasonFromNumber(uint16_t number);
TENSORFERRY_EXPORT bool IsRetryable(Reason reason);

[[nodiscard]] TENSORFERRY_EXPORT absl::Status MakeError(Reason reason, std::string_view message);
// Adds strerror(errno_value) and picks kNoMemory for ENOMEM, EMFILE, ENFILE, ENOSPC, EAGAIN,
// kAddressInUse for EADDRINUSE, kSystem for any other.
[[nodiscard]] TENSORFERRY_EXPORT absl::Status SystemError(int errno_value, std::string_view what);

// None for OK and for statuses made elsewhere.
TENSORFERRY_EXPORT std::optional<Reason> ReasonOf(const absl::Status& status);
// "ok", the reason's name, or the canonical code in lower case for statuses made elsewhere.
TENSORFERRY_EXPORT std::string_view ReasonNameOf(const absl::Status& status);
TENSORFERRY_EXPORT bool IsRetryable(const absl::Status& status);
// The same reason, with `context` and ": " in front of the message.
[[nodiscard]] TENSORFERRY_EXPORT absl::Status Annotate(const absl::Status& status,
                                                       std::string_view context);

}  // namespace tensorferry

#endif  // TENSORFERRY_BASE_ERROR_H_
