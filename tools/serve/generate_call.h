// One Generate of an engine, from its arrival until nothing of it is left: receives all tensors,
// then answers with the fixed tokens. Nothing is sent, no headers either, before all tensors are
// here: until then a gateway knows by the RPC's failure that its bytes were not taken.
//
//   return GenerateCall<Vllm>::Begin(engine, context, request);
//
// A `Kind` names an engine's messages and tells what is in them:
//   using Request, Response;
//   static absl::Status AddTensors(const Request&, Intake*);
//   static uint32_t PromptTokens(const Request&);
//   static std::optional<uint32_t> MostTokens(const Request&);
//   static void Address(const Request&, Response*);     // names the request in an answer
//
// Thread-safety: gRPC's, the queue's and the alarm's threads take turns; Stop from any.
// Ownership: keeps itself until OnDone; the engine outlives it.
#ifndef TENSORFERRY_TOOLS_SERVE_GENERATE_CALL_H_
#define TENSORFERRY_TOOLS_SERVE_GENERATE_CALL_H_

#include <grpcpp/alarm.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "tensorferry/base/error.h"
#include "tensorferry/grpc/status.h"
#include "tools/serve/engine.h"
#include "tools/serve/intake.h"

namespace tensorferry::tools {

template <class Kind>
class GenerateCall final : public grpc::ServerWriteReactor<typename Kind::Response>,
                           public Stoppable {
 public:
  using Request = typename Kind::Request;
  using Response = typename Kind::Response;

  static grpc::ServerWriteReactor<Response>* Begin(Engine* engine,
                                                   grpc::CallbackServerContext* context,
                                                   const Request* request) {
    const std::shared_ptr<GenerateCall> call(new GenerateCall(engine, context, request));
    call->self_ = call;
    engine->running.Add(request->request_id(), call);
    call->Receive();
    // gRPC lets nothing happen to it before it has this.
    return call.get();
  }

  void Stop() override {
    intake_->Cancel();
    const std::lock_guard<std::mutex> lock(mu_);
    stopped_ = true;
    if (alarm_) alarm_->Cancel();
  }

 private:
  GenerateCall(Engine* engine, grpc::CallbackServerContext* context, const Request* request)
      : engine_(engine),
        context_(context),
        request_(request),
        most_(std::min(engine->answer.tokens.size(),
                       size_t{Kind::MostTokens(*request).value_or(UINT32_MAX)})),
        intake_(std::make_shared<Intake>(&engine->intake, request->request_id(),
                                         RemainingTime(*context))) {}

  void Receive() {
    engine_->transport->EchoInstance(context_);
    if (absl::Status s = Kind::AddTensors(*request_, intake_.get()); !s.ok()) return Fail(s);
    intake_->Start([call = self_](const absl::Status& status, std::span<const Received> receipts) {
      if (!status.ok()) return call->Fail(status);
      AddReceipts(call->context_, receipts);
      call->Next();
    });
  }

  void Next() {
    if (stopped_) return Fail(MakeError(Reason::kCancelled, "the request was cancelled"));
    Response response;
    Kind::Address(*request_, &response);
    if (given_ == most_) {
      auto* complete = response.mutable_complete();
      for (const uint32_t token : given()) complete->add_output_ids(token);
      complete->set_finish_reason(most_ < engine_->answer.tokens.size() ? "length" : "stop");
      SetCounts(complete);
      response_ = std::move(response);
      this->StartWriteAndFinish(&response_, {}, grpc::Status::OK);
      return;
    }
    ++given_;
    if (!request_->stream()) return Pause();
    auto* chunk = response.mutable_chunk();
    chunk->add_token_ids(given().back());
    SetCounts(chunk);
    response_ = std::move(response);
    this->StartWrite(&response_);
  }

  void Pause() {
    if (engine_->answer.token_time == Duration::zero()) return Next();
    {
      const std::lock_guard<std::mutex> lock(mu_);
      if (!stopped_) {
        // A new one: the last may be what calls this.
        alarm_ = std::make_unique<grpc::Alarm>();
        alarm_->Set(std::chrono::system_clock::now() + engine_->answer.token_time,
                    [call = self_](bool) { call->Next(); });
        return;
      }
    }
    Next();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return Fail(MakeError(Reason::kCancelled, "the client is gone"));
    Pause();
  }

  void OnCancel() override { Stop(); }

  void OnDone() override {
    engine_->running.Remove(request_->request_id(), this);
    engine_->on_generated({.request_id = request_->request_id(),
                           .stream = request_->stream(),
                           .tensors = intake_->size(),
                           .tokens = given_,
                           .outcome = outcome_});
    const std::shared_ptr<GenerateCall> last = std::move(self_);
    // It keeps what it called, and so this.
    const std::lock_guard<std::mutex> lock(mu_);
    alarm_.reset();
  }

  void Fail(const absl::Status& status) {
    outcome_ = ReasonOf(status) == Reason::kCancelled ? Outcome::kCancelled : Outcome::kFailure;
    this->Finish(FailWith(context_, status));
  }

  std::span<const uint32_t> given() const {
    return std::span(engine_->answer.tokens).first(given_);
  }
  void SetCounts(auto* message) const {
    message->set_prompt_tokens(Kind::PromptTokens(*request_));
    message->set_completion_tokens(static_cast<uint32_t>(given_));
  }

  Engine* const engine_;
  grpc::CallbackServerContext* const context_;
  const Request* const request_;
  const size_t most_;  // tokens to give
  const std::shared_ptr<Intake> intake_;
  std::shared_ptr<GenerateCall> self_;
  Response response_;  // being written
  size_t given_ = 0;
  Outcome outcome_ = Outcome::kAnswered;
  std::atomic<bool> stopped_ = false;
  std::mutex mu_;
  std::unique_ptr<grpc::Alarm> alarm_;
};

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_SERVE_GENERATE_CALL_H_
