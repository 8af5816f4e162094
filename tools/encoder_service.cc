#include "tools/encoder_service.h"

#include <utility>
#include <vector>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/grpc/received.h"
#include "tensorferry/grpc/status.h"
#include "tensorferry/worker/budget.h"

namespace tensorferry::tools {
namespace {

using tokenspeed::grpc::encoder::EncodeRequest;
using tokenspeed::grpc::encoder::EncodeResponse;
using tokenspeed::grpc::scheduler::TensorData;

// One Encode, from its arrival to its answer.
class Call : public std::enable_shared_from_this<Call> {
 public:
  Call(const EncoderServiceOptions* options, grpc::CallbackServerContext* context,
       const EncodeRequest* request, EncodeResponse* response)
      : options_(options),
        context_(context),
        request_(request),
        response_(response),
        reactor_(context->DefaultReactor()),
        began_(clock_.Now()) {}

  grpc::ServerUnaryReactor* reactor() const { return reactor_; }

  void Run() {
    options_->transport->EchoInstance(context_);
    if (request_->mm_inputs().items_size() != 1 || request_->items_size() != 1) {
      return Finish(absl::InvalidArgumentError(
          StrCat("Encode takes one item and one room, not ", request_->mm_inputs().items_size(),
                 " items and ", request_->items_size(), " rooms")));
    }
    const auto& item = request_->mm_inputs().items(0);
    const Duration budget = PullBudget(RemainingTime(*context_), options_->pull_limit);
    // A side tensor has a lease, and so a key, of its own.
    std::vector<std::pair<const TensorData*, PullOptions>> tensors;
    tensors.push_back(
        {&item.encoder_input(), {.timeout = budget, .key = request_->items(0).bootstrap_room()}});
    for (const auto& [name, side] : item.model_specific_tensors()) {
      tensors.push_back({&side, {.timeout = budget}});
    }
    left_ = tensors.size();
    arrived_.resize(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      options_->receiver->ReceiveAsync(
          *tensors[i].first, tensors[i].second,
          [call = shared_from_this(), i](absl::StatusOr<Tensor> tensor) {
            const Duration took = call->clock_.Now() - call->began_;
            // Hashing takes longer than a puller's or gRPC's thread may be held up.
            call->options_->queue->Add([call, i, took,
                                        shared = std::make_shared<absl::StatusOr<Tensor>>(std::move(
                                            tensor))] { call->Arrived(i, *shared, took); });
          });
    }
  }

 private:
  void Arrived(size_t index, absl::StatusOr<Tensor>& tensor, Duration took) {
    absl::Status status = tensor.status();
    if (tensor.ok()) {
      const Sha256Digest sha256 = Sha256(tensor->bytes);
      arrived_[index] = {.lane = tensor->lane,
                         .transport = std::string(tensor->transport),
                         .nbytes = tensor->bytes.size(),
                         .sha256 = std::string(sha256.begin(), sha256.end())};
      status = options_->on_tensor({.request_id = request_->request_id(),
                                    .tensor = &*tensor,
                                    .sha256 = sha256,
                                    .took = took});
      // Before the answer: the gateway may count on its memory as soon as it has it.
      *tensor = Tensor{};
    }
    if (!status.ok()) options_->on_failure(request_->request_id(), status);
    {
      const std::lock_guard<std::mutex> lock(mu_);
      if (!status.ok() && failure_.ok()) failure_ = status;
      if (--left_ > 0) return;
    }
    Finish(failure_);
  }

  void Finish(const absl::Status& status) {
    if (status.ok()) {
      for (const Received& received : arrived_) AddReceived(context_, received);
      response_->set_accepted(true);
    }
    reactor_->Finish(FailWith(context_, status));
  }

  const EncoderServiceOptions* const options_;
  grpc::CallbackServerContext* const context_;
  const EncodeRequest* const request_;
  EncodeResponse* const response_;
  grpc::ServerUnaryReactor* const reactor_;
  const RealClock clock_;
  const Instant began_;
  std::vector<Received> arrived_;  // each written by its own tensor's thread
  std::mutex mu_;
  size_t left_ = 0;
  absl::Status failure_;
};

}  // namespace

grpc::ServerUnaryReactor* EncoderService::Encode(grpc::CallbackServerContext* context,
                                                 const EncodeRequest* request,
                                                 EncodeResponse* response) {
  const auto call = std::make_shared<Call>(&options_, context, request, response);
  call->Run();
  return call->reactor();
}

}  // namespace tensorferry::tools
