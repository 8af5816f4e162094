#include "tensorferry/grpc/status.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/v1/transport.pb.h"

namespace tensorferry {
namespace {

// gRPC refuses responses with more than 8 KiB of metadata, and the message travels twice.
constexpr size_t kMaxMessageBytes = 1024;

// SMG's workers answer with the text of a Python exception. They fetch before they do anything
// else, so that each of these means that nothing was done.
struct StockText {
  std::string_view part;
  Reason reason;
};
constexpr StockText kStockTexts[] = {
    {"remote descriptor room mismatch", Reason::kKeyMismatch},
    {"remote descriptor lacks room", Reason::kLegacyNeedsKey},
    {"remote descriptor too short", Reason::kTooShort},
    {"unsupported remote tensor transport", Reason::kUnknownTransport},
    {"landing pool unavailable", Reason::kLaneOff},
    {"TensorData.remote payload is not implemented", Reason::kLaneOff},
    {"exceeds landing slot", Reason::kTooLarge},
    {"NIXL remote metadata not ready", Reason::kUnreachable},
    {"landing-ring starvation", Reason::kLandingFull},
    {"NIXL READ timed out", Reason::kTimedOut},
    {"NIXL READ state=", Reason::kPeerClosed},
    // What NIXL's binding raises by itself: REMOTE_DISCONNECT and NOT_FOUND of a gateway whose agent
    // is another one by now.
    {"NIXL_ERR_", Reason::kPeerClosed},
    {"remote pixel size mismatch", Reason::kSizeMismatch},
    {"slot generation mismatch", Reason::kBadGeneration},
    {"TensorData.shm byte length mismatch", Reason::kSizeMismatch},
    {"TensorData.shm is ", Reason::kBadDescriptor},
    {"Invalid TensorData.shm name", Reason::kBadDescriptor},
    // Python's own words for a file that the worker cannot open.
    {"No such file or directory: '/dev/shm/", Reason::kOtherHost},
    {"Permission denied: '/dev/shm/", Reason::kUidMismatch},
};

std::string Shortened(std::string_view message) {
  return std::string(message.substr(0, kMaxMessageBytes));
}

grpc::StatusCode CodeFor(const absl::Status& status) {
  const auto reason = ReasonOf(status);
  if (!reason) return static_cast<grpc::StatusCode>(status.code());
  switch (*reason) {
    case Reason::kCancelled:
      return grpc::StatusCode::CANCELLED;
    case Reason::kShutDown:
      return grpc::StatusCode::UNAVAILABLE;
    case Reason::kUnknownDtype:
      // Bad input, but SMG's workers answer this one with INTERNAL.
      return grpc::StatusCode::INTERNAL;
    default:
      return absl::IsInvalidArgument(status) ? grpc::StatusCode::INVALID_ARGUMENT
                                             : grpc::StatusCode::INTERNAL;
  }
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(CodeFor(status), Shortened(StdView(status.message())));
}

grpc::Status FailWith(grpc::ServerContextBase* context, const absl::Status& status) {
  if (const auto reason = ReasonOf(status)) {
    v1::TransportError error;
    error.set_reason(std::string(ReasonName(*reason)));
    error.set_message(Shortened(StdView(status.message())));
    error.set_retryable(IsRetryable(*reason));
    context->AddTrailingMetadata(kErrorKey, error.SerializeAsString());
  }
  return ToGrpc(status);
}

std::optional<PullFailure> ReadStockPullFailure(const grpc::Status& status) {
  if (status.error_code() != grpc::StatusCode::INVALID_ARGUMENT &&
      status.error_code() != grpc::StatusCode::INTERNAL) {
    return std::nullopt;
  }
  const std::string message = status.error_message();
  for (const StockText& text : kStockTexts) {
    if (message.find(text.part) == std::string::npos) continue;
    return PullFailure{
        .reason = text.reason, .message = message, .retryable = IsRetryable(text.reason)};
  }
  return std::nullopt;
}

std::optional<PullFailure> ReadPullFailure(const grpc::ClientContext& context) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find(kErrorKey);
  if (found == trailers.end()) return std::nullopt;
  v1::TransportError error;
  if (!error.ParseFromArray(found->second.data(), static_cast<int>(found->second.size()))) {
    return std::nullopt;
  }
  return PullFailure{.reason = ReasonFromName(error.reason()),
                     .message = error.message(),
                     .retryable = error.retryable()};
}

absl::Status FromGrpc(const grpc::Status& status, const grpc::ClientContext& context) {
  if (status.ok()) return absl::OkStatus();
  if (const auto failure = ReadPullFailure(context)) return failure->ToStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

std::optional<Duration> RemainingTime(const grpc::ServerContextBase& context) {
  using WallClock = std::chrono::system_clock;
  const WallClock::time_point deadline = context.deadline();
  if (deadline == WallClock::time_point::max()) return std::nullopt;
  return std::max<Duration>(deadline - WallClock::now(), Duration::zero());
}

}  // namespace tensorferry
