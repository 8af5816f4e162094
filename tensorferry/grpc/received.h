// The worker's receipt: what it holds in its hands, one per tensor, in the request's order.
//
//   AddReceived(context, {.lane = t.lane, .transport = ..., .nbytes = ...});    // worker
//   for (const Received& r : ReadReceived(context)) ...                         // gateway
//
// Travels in the trailing metadata `tensorferry-received-bin` (tensorferry.v1.Received), about 60
// bytes each; gRPC takes 8 KiB of metadata, so a request with hundreds of tensors should report
// only its main ones.
//
// Thread-safety: pure functions; a context is used by one thread at a time.
#ifndef TENSORFERRY_GRPC_RECEIVED_H_
#define TENSORFERRY_GRPC_RECEIVED_H_

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tensorferry/base/export.h"
#include "tensorferry/policy/lane.h"

namespace tensorferry {

inline constexpr char kReceivedKey[] = "tensorferry-received-bin";

struct Received {
  Lane lane = Lane::kInline;
  std::string transport = {};
  uint64_t nbytes = 0;
  std::string sha256 = {};  // 32 bytes, or empty: not hashed

  friend bool operator==(const Received&, const Received&) = default;
};

// Before the handler finishes.
TENSORFERRY_EXPORT void AddReceived(grpc::ServerContextBase* context, const Received& received);
// After the RPC has ended. Empty when the worker does not say; what does not parse is skipped.
TENSORFERRY_EXPORT std::vector<Received> ReadReceived(const grpc::ClientContext& context);

}  // namespace tensorferry

#endif  // TENSORFERRY_GRPC_RECEIVED_H_
