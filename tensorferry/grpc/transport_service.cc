#include "tensorferry/grpc/transport_service.h"

#include <atomic>

#include "tensorferry/grpc/capabilities_proto.h"
#include "tensorferry/v1/transport.grpc.pb.h"

namespace tensorferry {

class TransportService::Impl final : public v1::Transport::CallbackService {
 public:
  explicit Impl(const Capabilities& capabilities) : answer_(ToProto(capabilities)) {}

  grpc::ServerUnaryReactor* GetCapabilities(grpc::CallbackServerContext* context,
                                            const v1::GetCapabilitiesRequest*,
                                            v1::Capabilities* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    if (draining_.load()) {
      reactor->Finish(
          grpc::Status(grpc::StatusCode::UNAVAILABLE, "this worker is draining: use another"));
      return reactor;
    }
    *response = answer_;
    Echo(context);
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  void Echo(grpc::ServerContextBase* context) const {
    context->AddTrailingMetadata(kInstanceKey, answer_.instance_id());
  }
  void Drain() { draining_.store(true); }

 private:
  const v1::Capabilities answer_;
  std::atomic<bool> draining_ = false;
};

TransportService::TransportService(const Capabilities& capabilities)
    : impl_(std::make_unique<Impl>(capabilities)) {}
TransportService::~TransportService() = default;

grpc::Service* TransportService::service() { return impl_.get(); }
void TransportService::EchoInstance(grpc::ServerContextBase* context) const {
  impl_->Echo(context);
}
void TransportService::Drain() { impl_->Drain(); }

}  // namespace tensorferry
