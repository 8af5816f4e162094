#include "tensorferry/grpc/capability_client.h"

#include <condition_variable>
#include <future>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/grpc/capabilities_proto.h"
#include "tensorferry/grpc/status.h"
#include "tensorferry/grpc/transport_service.h"
#include "tensorferry/v1/transport.grpc.pb.h"

namespace tensorferry {

class CapabilityClient::Impl {
 public:
  Impl(const std::shared_ptr<grpc::ChannelInterface>& channel,
       const CapabilityClientOptions& options)
      : stub_(v1::Transport::NewStub(channel)), options_(options) {}

  ~Impl() {
    std::unique_lock lock(mutex_);
    closing_ = true;
    if (question_) question_->context.TryCancel();
    idle_.wait(lock, [this] { return calls_ == 0; });
  }

  void GetAsync(Callback done) {
    std::unique_lock lock(mutex_);
    if (known_) {
      const Result known = known_;
      lock.unlock();
      done(known);
      return;
    }
    if (closing_) {
      lock.unlock();
      done(MakeError(Reason::kShutDown, "the CapabilityClient is closing"));
      return;
    }
    waiting_.push_back(std::move(done));
    if (question_) return;
    ++calls_;
    question_ = std::make_unique<Question>();
    Question* const question = question_.get();
    question->context.set_deadline(
        std::chrono::system_clock::now() +
        std::chrono::duration_cast<std::chrono::microseconds>(options_.timeout));
    lock.unlock();
    stub_->async()->GetCapabilities(&question->context, &question->request, &question->response,
                                    [this](const grpc::Status& status) { Answered(status); });
  }

  void Observe(const grpc::ClientContext& context) {
    const auto& trailers = context.GetServerTrailingMetadata();
    const auto echoed = trailers.find(kInstanceKey);
    if (echoed == trailers.end()) return;
    const std::string_view instance(echoed->second.data(), echoed->second.size());
    const std::lock_guard lock(mutex_);
    if (known_ && known_->instance_id != instance) known_ = nullptr;
  }

 private:
  struct Question {
    grpc::ClientContext context;
    v1::GetCapabilitiesRequest request;
    v1::Capabilities response;
  };

  static Result Read(const grpc::Status& status, const Question& question) {
    if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
      return std::make_shared<const Capabilities>();
    }
    if (!status.ok()) {
      return Annotate(FromGrpc(status, question.context), "asking the worker what it can take");
    }
    Capabilities answer = FromProto(question.response);
    if (answer.instance_id.empty()) {
      return MakeError(Reason::kProtocol,
                       "the worker's capabilities have no instance id: update the worker");
    }
    return std::make_shared<const Capabilities>(std::move(answer));
  }

  void Answered(const grpc::Status& status) {
    std::vector<Callback> waiting;
    Result result;
    {
      const std::lock_guard lock(mutex_);
      result = Read(status, *question_);
      if (result.ok()) known_ = *result;
      question_.reset();
      waiting.swap(waiting_);
    }
    for (const Callback& done : waiting) done(result);
    const std::lock_guard lock(mutex_);
    if (--calls_ == 0) idle_.notify_all();
  }

  const std::unique_ptr<v1::Transport::Stub> stub_;
  const CapabilityClientOptions options_;
  std::mutex mutex_;
  std::condition_variable idle_;
  std::shared_ptr<const Capabilities> known_;
  std::unique_ptr<Question> question_;  // under way
  std::vector<Callback> waiting_;       // for it
  int calls_ = 0;                       // questions whose callbacks have not all returned
  bool closing_ = false;
};

CapabilityClient::CapabilityClient(std::shared_ptr<grpc::ChannelInterface> channel,
                                   const CapabilityClientOptions& options)
    : impl_(std::make_unique<Impl>(std::move(channel), options)) {}
CapabilityClient::~CapabilityClient() = default;

void CapabilityClient::GetAsync(Callback done) { impl_->GetAsync(std::move(done)); }
void CapabilityClient::Observe(const grpc::ClientContext& context) { impl_->Observe(context); }

CapabilityClient::Result CapabilityClient::Get() {
  // Shared: set_value may still be under way when get returns.
  const auto promise = std::make_shared<std::promise<Result>>();
  std::future<Result> answer = promise->get_future();
  impl_->GetAsync([promise](const Result& result) { promise->set_value(result); });
  return answer.get();
}

}  // namespace tensorferry
