#include "tensorferry/grpc/capability_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "tensorferry/base/error.h"
#include "tensorferry/exporter/exporter_testing.h"
#include "tensorferry/grpc/transport_service.h"
#include "tensorferry/grpc/worker_testing.h"
#include "tensorferry/v1/transport.grpc.pb.h"

namespace tensorferry {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Capabilities Worker(const std::string& instance) {
  return {.lanes = {Lane::kInline, Lane::kShm, Lane::kRemote},
          .transports = {"grpc", "local", "tcp"},
          .landing_bytes = 1 << 30,
          .max_inline_bytes = 64 << 20,
          .host = {.boot_id = {1, 2, 3},
                   .uid = 0,
                   .shm_namespace = "abc:21",
                   .pid_namespace = 4026531836,
                   .user_namespace = 4026531837},
          .descriptor_versions = {1},
          .instance_id = instance,
          .version = "0.1.0",
          .hold = seconds(180),
          .unavailable = {{"nixl", "no library"}},
          .rdma_devices = {"mlx5_0:1", "mlx5_1:1"}};
}

// Answers only when told to, and counts the questions.
class HeldService final : public v1::Transport::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetCapabilities(grpc::CallbackServerContext* context,
                                            const v1::GetCapabilitiesRequest*,
                                            v1::Capabilities* response) override {
    const std::lock_guard lock(mutex_);
    ++asked_;
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    response->set_instance_id("held");
    if (answering_) {
      reactor->Finish(grpc::Status::OK);
    } else {
      held_.push_back(reactor);
    }
    changed_.notify_all();
    return reactor;
  }
  void AwaitQuestions(int n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return asked_ >= n; });
  }
  // Also those that are still to come.
  void AnswerAll() {
    const std::lock_guard lock(mutex_);
    answering_ = true;
    for (grpc::ServerUnaryReactor* reactor : held_) reactor->Finish(grpc::Status::OK);
    held_.clear();
  }
  int asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<grpc::ServerUnaryReactor*> held_;
  int asked_ = 0;
  bool answering_ = false;
};

// What a callback brings. Shared with the callback, which may still be returning when the answer is
// there.
class Answer {
 public:
  CapabilityClient::Callback callback() const {
    return [promise = promise_](const CapabilityClient::Result& r) { promise->set_value(r); };
  }
  CapabilityClient::Result Await() const { return promise_->get_future().get(); }

 private:
  std::shared_ptr<std::promise<CapabilityClient::Result>> promise_ =
      std::make_shared<std::promise<CapabilityClient::Result>>();
};

class CapabilityClientTest : public testing::Test {
 protected:
  CapabilityClientTest() { MakeClient(seconds(20)); }
  void MakeClient(Duration timeout) {
    client_ =
        std::make_unique<CapabilityClient>(channel_, CapabilityClientOptions{.timeout = timeout});
  }
  void Serve(grpc::Service* service) {
    worker_.Serve(service);
    AwaitConnected(channel_);
  }
  void Stop() {
    worker_.Stop();
    AwaitDisconnected(channel_);
  }
  void EncodeAndObserve() {
    grpc::ClientContext context;
    ASSERT_TRUE(Encode(channel_, EncodeRequest(), &context).ok());
    client_->Observe(context);
  }

  TempDir dir_;
  TransportService* echo_ = nullptr;
  TestWorker worker_{dir_.path() + "/worker",
                     [this](grpc::CallbackServerContext* context, const EncodeRequest&,
                            TestWorker::Finish finish) {
                       if (echo_ != nullptr) echo_->EchoInstance(context);
                       finish(grpc::Status::OK);
                     }};
  std::shared_ptr<grpc::Channel> channel_ = worker_.channel();
  std::unique_ptr<CapabilityClient> client_;
};

TEST_F(CapabilityClientTest, EveryFieldArrives) {
  TransportService service(Worker("w1"));
  Serve(service.service());
  const CapabilityClient::Result got = client_->Get();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(**got, Worker("w1"));
  EXPECT_FALSE((*got)->stock());
  Stop();
}

TEST_F(CapabilityClientTest, UnknownStaysUnknown) {
  TransportService service({.instance_id = "w1"});
  Serve(service.service());
  const CapabilityClient::Result got = client_->Get();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(**got, Capabilities{.instance_id = "w1"});
  Stop();
}

TEST_F(CapabilityClientTest, AnAnswerIsRemembered) {
  TransportService service(Worker("w1"));
  Serve(service.service());
  ASSERT_TRUE(client_->Get().ok());
  Stop();  // nobody is left to ask
  EXPECT_EQ((*client_->Get())->instance_id, "w1");
}

TEST_F(CapabilityClientTest, AStockWorkerIsRememberedAsInlineOnly) {
  Serve(nullptr);
  const CapabilityClient::Result got = client_->Get();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE((*got)->stock());
  EXPECT_EQ(**got, Capabilities());
  Stop();
  EXPECT_TRUE(client_->Get().ok());
}

TEST_F(CapabilityClientTest, AWorkerThatIsNotThereIsNotStock) {
  const CapabilityClient::Result got = client_->Get();
  EXPECT_EQ(got.status().code(), absl::StatusCode::kUnavailable) << got.status();

  TransportService service(Worker("w1"));
  Serve(service.service());
  const CapabilityClient::Result later = client_->Get();
  ASSERT_TRUE(later.ok()) << later.status();
  EXPECT_EQ((*later)->instance_id, "w1");
  Stop();
}

TEST_F(CapabilityClientTest, ADrainingWorkerIsNotStock) {
  TransportService service(Worker("w1"));
  Serve(service.service());
  service.Drain();
  EXPECT_TRUE(absl::IsUnavailable(client_->Get().status()));
  Stop();

  TransportService next(Worker("w2"));
  Serve(next.service());
  const CapabilityClient::Result later = client_->Get();
  EXPECT_EQ((*later)->instance_id, "w2");
  Stop();
}

TEST_F(CapabilityClientTest, ADeadlineIsNotRemembered) {
  HeldService service;
  Serve(&service);
  MakeClient(milliseconds(200));
  EXPECT_TRUE(absl::IsDeadlineExceeded(client_->Get().status()));
  EXPECT_TRUE(absl::IsDeadlineExceeded(client_->Get().status()));
  service.AnswerAll();
  Stop();
}

TEST_F(CapabilityClientTest, AnAnswerWithoutInstanceIsRefused) {
  TransportService service(Worker(""));
  Serve(service.service());
  EXPECT_EQ(ReasonOf(client_->Get().status()), Reason::kProtocol);
  Stop();
}

TEST_F(CapabilityClientTest, ARestartIsNoticedByTheEcho) {
  TransportService first(Worker("w1"));
  Serve(first.service());
  echo_ = &first;
  EXPECT_EQ((*client_->Get())->instance_id, "w1");
  EncodeAndObserve();
  Stop();

  Capabilities changed = Worker("w2");
  changed.landing_bytes = 5;
  TransportService second(changed);
  Serve(second.service());
  echo_ = &second;
  EXPECT_EQ((*client_->Get())->instance_id, "w1");  // nothing was heard of the new one yet
  EncodeAndObserve();
  const CapabilityClient::Result later = client_->Get();
  EXPECT_EQ(**later, changed);
  Stop();
}

TEST_F(CapabilityClientTest, AStockWorkerThatWasReplacedIsAskedAgain) {
  Serve(nullptr);
  EXPECT_TRUE((*client_->Get())->stock());
  Stop();
  TransportService service(Worker("w1"));
  Serve(service.service());
  echo_ = &service;
  EncodeAndObserve();
  const CapabilityClient::Result later = client_->Get();
  EXPECT_EQ((*later)->instance_id, "w1");
  Stop();
}

TEST_F(CapabilityClientTest, AResponseWithoutEchoChangesNothing) {
  TransportService service(Worker("w1"));
  Serve(service.service());
  ASSERT_TRUE(client_->Get().ok());
  EncodeAndObserve();
  Stop();
  EXPECT_EQ((*client_->Get())->instance_id, "w1");
}

TEST_F(CapabilityClientTest, CallsAtTheSameTimeShareOneQuestion) {
  HeldService service;
  Serve(&service);
  constexpr int kCalls = 16;
  const std::vector<Answer> answers(kCalls);
  for (const Answer& answer : answers) client_->GetAsync(answer.callback());
  std::vector<std::thread> threads;
  std::atomic<int> found = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { found += client_->Get().ok() ? 1 : 0; });
  }
  service.AwaitQuestions(1);
  service.AnswerAll();
  for (const Answer& answer : answers) EXPECT_EQ((*answer.Await())->instance_id, "held");
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(found, 4);
  EXPECT_EQ(service.asked(), 1);
  Stop();
}

TEST_F(CapabilityClientTest, DestructionEndsAQuestion) {
  HeldService service;
  Serve(&service);
  std::optional<CapabilityClient::Result> got;
  client_->GetAsync([&](const CapabilityClient::Result& r) { got = r; });
  service.AwaitQuestions(1);
  client_.reset();
  ASSERT_TRUE(got.has_value());  // the destructor has waited for it
  EXPECT_TRUE(absl::IsCancelled(got->status())) << got->status();
  service.AnswerAll();
  Stop();
}

TEST_F(CapabilityClientTest, ACallbackMayAskAgain) {
  const Answer second;
  client_->GetAsync([&](const CapabilityClient::Result& first) {
    EXPECT_TRUE(absl::IsUnavailable(first.status()));
    client_->GetAsync(second.callback());
  });
  EXPECT_TRUE(absl::IsUnavailable(second.Await().status()));
}

}  // namespace
}  // namespace tensorferry
