// Errors across an RPC: our Status to gRPC's and back, without losing the Reason.
//
//   // worker: in the handler, once, before it finishes
//   reactor->Finish(FailWith(context, tensor.status()));   // and trailing metadata
//
//   // gateway: after the RPC
//   auto failure = ReadPullFailure(context);               // the worker's word: a re-send is safe
//   if (!failure) failure = ReadStockPullFailure(status);  // from a worker of SMG's
//   absl::Status s = FromGrpc(status, context);            // for logs, with the Reason if any
//
// The codes are those that SMG's workers answer with: bad input INVALID_ARGUMENT, a tensor that
// could not be fetched INTERNAL, so that stock gateways do with them what they always did. The
// Reason goes beside them in the trailing metadata `tensorferry-error-bin`
// (tensorferry.v1.TransportError).
//
// Thread-safety: pure functions; a context is used by one thread at a time.
#ifndef TENSORFERRY_GRPC_STATUS_H_
#define TENSORFERRY_GRPC_STATUS_H_

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <optional>

#include "absl/status/status.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/export.h"
#include "tensorferry/gateway/sender.h"

namespace tensorferry {

inline constexpr char kErrorKey[] = "tensorferry-error-bin";

// The status alone. Statuses without a Reason keep their canonical code.
TENSORFERRY_EXPORT grpc::Status ToGrpc(const absl::Status& status);
// And the Reason, if `status` has one, into the trailing metadata. OK passes through.
TENSORFERRY_EXPORT grpc::Status FailWith(grpc::ServerContextBase* context,
                                         const absl::Status& status);

// What SMG's own workers say, in words, of a tensor that they could not fetch. None for any other
// failure.
TENSORFERRY_EXPORT std::optional<PullFailure> ReadStockPullFailure(const grpc::Status& status);

// After the RPC has ended. None: it did not fail, or not by a worker's report.
TENSORFERRY_EXPORT std::optional<PullFailure> ReadPullFailure(const grpc::ClientContext& context);
TENSORFERRY_EXPORT absl::Status FromGrpc(const grpc::Status& status,
                                         const grpc::ClientContext& context);

// Until the deadline of the RPC being served, zero when it has passed, none when it has no
// deadline.
TENSORFERRY_EXPORT std::optional<Duration> RemainingTime(const grpc::ServerContextBase& context);

}  // namespace tensorferry

#endif  // TENSORFERRY_GRPC_STATUS_H_
