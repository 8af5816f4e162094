#include "tools/serve/encoder_service.h"

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <span>

#include "tensorferry/base/text.h"
#include "tensorferry/grpc/status.h"
#include "tools/serve/intake.h"

namespace tensorferry::tools {
namespace {

using tokenspeed::grpc::encoder::EncodeRequest;
using tokenspeed::grpc::encoder::EncodeResponse;

// One Encode, from its arrival until nothing of it is left. Keeps itself until then.
class EncodeCall final : public grpc::ServerUnaryReactor, public Stoppable {
 public:
  static grpc::ServerUnaryReactor* Begin(Engine* engine, grpc::CallbackServerContext* context,
                                         const EncodeRequest* request, EncodeResponse* response) {
    const std::shared_ptr<EncodeCall> call(new EncodeCall(engine, context, request));
    call->self_ = call;
    engine->running.Add(request->request_id(), call);
    engine->transport->EchoInstance(context);
    call->Receive(context, *request, response);
    // gRPC lets nothing happen to it before it has this.
    return call.get();
  }

  void Stop() override { intake_->Cancel(); }

 private:
  EncodeCall(Engine* engine, grpc::CallbackServerContext* context, const EncodeRequest* request)
      : engine_(engine),
        request_(request),
        intake_(std::make_shared<Intake>(&engine->intake, request->request_id(),
                                         RemainingTime(*context))) {}

  void Receive(grpc::CallbackServerContext* context, const EncodeRequest& request,
               EncodeResponse* response) {
    if (request.mm_inputs().items_size() != 1 || request.items_size() != 1) {
      return Finish(ToGrpc(absl::InvalidArgumentError(
          StrCat("Encode takes one item and one room, not ", request.mm_inputs().items_size(),
                 " items and ", request.items_size(), " rooms"))));
    }
    const auto& item = request.mm_inputs().items(0);
    // A side tensor has a lease, and so a key, of its own.
    intake_->Add({.name = "encoder_input"}, item.encoder_input(),
                 request.items(0).bootstrap_room());
    intake_->AddSides(0, item.model_specific_tensors());
    intake_->Start([call = self_, context, response](const absl::Status& status,
                                                     std::span<const Received> receipts) {
      AddReceipts(context, receipts);
      response->set_accepted(status.ok());
      call->Finish(FailWith(context, status));
    });
  }

  void OnCancel() override { Stop(); }
  void OnDone() override {
    engine_->running.Remove(request_->request_id(), this);
    const std::shared_ptr<EncodeCall> last = std::move(self_);
  }

  Engine* const engine_;
  const EncodeRequest* const request_;
  const std::shared_ptr<Intake> intake_;
  std::shared_ptr<EncodeCall> self_;
};

}  // namespace

grpc::ServerUnaryReactor* EncoderService::Encode(grpc::CallbackServerContext* context,
                                                 const EncodeRequest* request,
                                                 EncodeResponse* response) {
  return EncodeCall::Begin(engine_, context, request, response);
}

}  // namespace tensorferry::tools
