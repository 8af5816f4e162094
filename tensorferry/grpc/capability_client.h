// What one worker can take: asked once, remembered until it restarts.
//
//   CapabilityClient capabilities(channel, {});
//   auto worker = capabilities.Get();                  // at start, or before the first request
//   sender.Attach(lease, **worker, ...);
//   grpc::Status status = stub->Encode(&context, request, &response);
//   capabilities.Observe(context);                     // after each RPC to this worker
//
// A worker that answers UNIMPLEMENTED is a stock one, which is remembered too: its Capabilities say
// inline only. Any other failure (UNAVAILABLE, a deadline) says nothing about the worker: it is
// returned and not remembered. Observe compares the instance id that a response echoes; when it is
// another one, the next Get asks again. One client per worker and channel: a name that reaches
// several workers would make it ask again and again.
//
// Thread-safety: everything from any thread; GetAsync and Observe never block. Calls made while an
// answer is under way share it.
//
// Ownership: keeps the channel. The destructor cancels what is under way and waits for it, so every
// callback is called, and none may destroy the client.
#ifndef TENSORFERRY_GRPC_CAPABILITY_CLIENT_H_
#define TENSORFERRY_GRPC_CAPABILITY_CLIENT_H_

#include <grpcpp/client_context.h>
#include <grpcpp/impl/codegen/channel_interface.h>

#include <chrono>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/export.h"
#include "tensorferry/policy/capabilities.h"

namespace tensorferry {

struct CapabilityClientOptions {
  Duration timeout = std::chrono::seconds(2);  // of one question
};

class TENSORFERRY_EXPORT CapabilityClient {
 public:
  using Result = absl::StatusOr<std::shared_ptr<const Capabilities>>;
  using Callback = std::function<void(const Result&)>;

  CapabilityClient(std::shared_ptr<grpc::ChannelInterface> channel,
                   const CapabilityClientOptions& options);
  ~CapabilityClient();

  // Waits for the answer, at most options.timeout: not on gRPC's own threads.
  Result Get();
  // `done` runs before this returns when the answer is remembered, else on a thread of gRPC; it
  // must not block.
  void GetAsync(Callback done);
  // After an RPC has ended.
  void Observe(const grpc::ClientContext& context);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tensorferry

#endif  // TENSORFERRY_GRPC_CAPABILITY_CLIENT_H_
