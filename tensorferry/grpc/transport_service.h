// The worker's answer to "what can you take?": tensorferry.v1.Transport, beside the engine's own
// service.
//
//   TransportService transport(DescribeWorker(puller.get(), max_message_bytes));
//   builder.RegisterService(transport.service());
//   ...
//   transport.EchoInstance(context);     // in each handler of the engine's service
//   transport.Drain();                   // before the server stops taking requests
//
// Gateways keep the answer until a response of the worker echoes another instance id: that is how
// they notice a restart, so echo it in every response, also in failures.
//
// Thread-safety: everything from any thread.
// Ownership: outlives the server that it is registered with.
#ifndef TENSORFERRY_GRPC_TRANSPORT_SERVICE_H_
#define TENSORFERRY_GRPC_TRANSPORT_SERVICE_H_

#include <grpcpp/impl/service_type.h>
#include <grpcpp/server_context.h>

#include <memory>

#include "tensorferry/base/export.h"
#include "tensorferry/policy/capabilities.h"

namespace tensorferry {

inline constexpr char kInstanceKey[] = "tensorferry-instance-bin";

class TENSORFERRY_EXPORT TransportService {
 public:
  explicit TransportService(const Capabilities& capabilities);
  ~TransportService();

  grpc::Service* service();
  // Adds the instance id to the trailing metadata. Before the handler finishes.
  void EchoInstance(grpc::ServerContextBase* context) const;
  // From now on UNAVAILABLE: gateways choose another worker, and remember nothing about this one.
  void Drain();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tensorferry

#endif  // TENSORFERRY_GRPC_TRANSPORT_SERVICE_H_
