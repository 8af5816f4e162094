// Gateway and worker as they are embedded: Sender, an RPC, Receiver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "tensorferry/base/contains.h"
#include "tensorferry/base/error.h"
#include "tensorferry/exporter/exporter_testing.h"
#include "tensorferry/gateway/sender.h"
#include "tensorferry/grpc/capability_client.h"
#include "tensorferry/grpc/received.h"
#include "tensorferry/grpc/status.h"
#include "tensorferry/grpc/transport_service.h"
#include "tensorferry/grpc/worker_testing.h"
#include "tensorferry/wire/descriptor.h"
#include "tensorferry/worker/budget.h"
#include "tensorferry/worker/describe.h"
#include "tensorferry/worker/receiver.h"

namespace tensorferry {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;

constexpr uint32_t kBytes = 256 * 1024;

// One start of a worker process: its puller, its identity, and what it does with a request.
struct WorkerProcess {
  // Which descriptors it says that it reads; it really reads those only.
  explicit WorkerProcess(PullerOptions options,
                         std::vector<uint32_t> reads = {wire::kDescriptorVersion})
      : versions(std::move(reads)) {
    options.prefault = false;
    auto made = Puller::Create(std::move(options));
    EXPECT_TRUE(made.ok()) << made.status();
    puller = *std::move(made);
    Capabilities capabilities = DescribeWorker(puller.get(), 0);
    capabilities.descriptor_versions = versions;
    transport = std::make_unique<TransportService>(capabilities);
    receiver = std::make_unique<Receiver>(puller.get());
  }
  // Inline only.
  WorkerProcess()
      : transport(std::make_unique<TransportService>(DescribeWorker(nullptr, 0))),
        receiver(std::make_unique<Receiver>(nullptr)) {}

  std::vector<uint32_t> versions = {wire::kDescriptorVersion};
  std::unique_ptr<Puller> puller;
  std::unique_ptr<TransportService> transport;
  std::unique_ptr<Receiver> receiver;
};

class LanesTest : public testing::Test {
 protected:
  ~LanesTest() override { worker_.Stop(); }

  void Start(std::unique_ptr<WorkerProcess> process) {
    worker_.Stop();
    AwaitDisconnected(channel_);
    process_ = std::move(process);
    worker_.Serve(process_->transport->service());
    AwaitConnected(channel_);
  }
  static PullerOptions Landing(uint64_t bytes) { return {.landing_bytes = bytes}; }

  void Handle(grpc::CallbackServerContext* context, const EncodeRequest& request,
              const TestWorker::Finish& finish) {
    ++rpcs_;
    process_->transport->EchoInstance(context);
    if (answer_) {
      finish(answer_(context));
      return;
    }
    const auto& data = request.mm_inputs().items(0).encoder_input();
    if (data.has_remote() && !Contains(process_->versions, wire::kDescriptorVersion)) {
      finish(FailWith(context, MakeError(Reason::kUnknownVersion, "that is an old one")));
      return;
    }
    process_->receiver->ReceiveAsync(
        data,
        {.timeout = PullBudget(RemainingTime(*context)), .key = request.items(0).bootstrap_room()},
        [this, context, finish](absl::StatusOr<Tensor> tensor) {
          if (tensor.ok()) {
            AddReceived(context, {.lane = tensor->lane,
                                  .transport = std::string(tensor->transport),
                                  .nbytes = tensor->bytes.size()});
            const std::lock_guard lock(mutex_);
            bytes_.assign(tensor->bytes.begin(), tensor->bytes.end());
          }
          finish(FailWith(context, tensor.status()));
        });
  }

  std::shared_ptr<const Capabilities> WorkerNow() {
    const auto got = capabilities_.Get();
    EXPECT_TRUE(got.ok()) << got.status();
    return *got;
  }

  // What a gateway does with one tensor; see examples/gateway.cc.
  absl::StatusOr<std::vector<Received>> Send(const Lease& lease, const Capabilities& worker,
                                             const LanePolicy& policy,
                                             Duration timeout = seconds(60)) {
    EncodeRequest request;
    request.add_items()->set_bootstrap_room(lease.key());
    auto* data = request.mutable_mm_inputs()->add_items()->mutable_encoder_input();
    auto sent = sender_.Attach(lease, worker,
                               {.dtype = Dtype::kUint8,
                                .shape = {static_cast<uint32_t>(lease.bytes().size())},
                                .policy = policy},
                               data);
    const auto deadline = std::chrono::system_clock::now() +
                          std::chrono::duration_cast<std::chrono::system_clock::duration>(timeout);
    while (sent.ok()) {
      grpc::ClientContext context;
      context.set_deadline(deadline);
      const grpc::Status status = Encode(channel_, request, &context);
      capabilities_.Observe(context);
      if (status.ok()) return ReadReceived(context);
      const auto failure = ReadPullFailure(context);
      if (!failure) return FromGrpc(status, context);
      sent = sender_.AttachInline(lease, *sent, *failure, data);
    }
    return sent.status();
  }

  // Sends from several threads until it is told to end; each tensor must arrive. As a gateway does,
  // it tries again what a worker that was going broke off, with an attach of its own for each try.
  class Traffic {
   public:
    explicit Traffic(LanesTest* test) : test_(test) {
      for (int t = 0; t < 4; ++t) threads_.emplace_back([this] { Run(); });
    }
    ~Traffic() {
      ends_ = true;
      for (std::thread& t : threads_) t.join();
    }
    // Until one arrived by this lane, of those that are sent from now on.
    void AwaitLane(Lane lane) {
      std::unique_lock<std::mutex> lock(mu_);
      arrived_.clear();
      EXPECT_TRUE(changed_.wait_for(lock, seconds(60), [&] { return arrived_.contains(lane); }))
          << LaneName(lane);
    }

   private:
    void Run() {
      const auto pattern = Pattern(kBytes, 3);
      while (!ends_) {
        const Lease lease = test_->gateway_->Export(pattern, {});
        absl::StatusOr<std::vector<Received>> received;
        do {
          const auto worker = test_->capabilities_.Get();
          received = worker.ok() ? test_->Send(lease, **worker, {}) : worker.status();
        } while (BrokenOff(received.status()));
        ASSERT_TRUE(received.ok()) << received.status();
        ASSERT_EQ(received->size(), 1U);
        const std::lock_guard<std::mutex> lock(mu_);
        arrived_.insert(received->front().lane);
        changed_.notify_all();
      }
    }
    // Nobody here cancels.
    static bool BrokenOff(const absl::Status& status) {
      return absl::IsUnavailable(status) || absl::IsCancelled(status);
    }
    LanesTest* const test_;
    std::atomic<bool> ends_ = false;
    std::mutex mu_;
    std::condition_variable changed_;
    std::set<Lane> arrived_;
    std::vector<std::thread> threads_;
  };

  std::vector<std::byte> bytes() {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

  ExporterForTest gateway_;
  Sender sender_{&*gateway_, {}};
  TempDir dir_;
  std::atomic<int> rpcs_ = 0;
  std::function<grpc::Status(grpc::CallbackServerContext*)> answer_;  // instead of receiving
  std::mutex mutex_;
  std::vector<std::byte> bytes_;  // of the last tensor
  std::unique_ptr<WorkerProcess> process_;
  TestWorker worker_{
      dir_.path() + "/worker",
      [this](grpc::CallbackServerContext* context, const EncodeRequest& request,
             const TestWorker::Finish& finish) { Handle(context, request, finish); }};
  std::shared_ptr<grpc::Channel> channel_ = worker_.channel();
  CapabilityClient capabilities_{channel_, {.timeout = seconds(60)}};
};

TEST_F(LanesTest, EveryLaneArrives) {
  Start(std::make_unique<WorkerProcess>(Landing(8 << 20)));
  const auto worker = WorkerNow();
  const auto pattern = Pattern(kBytes, 3);
  const Lease lease = gateway_->Export(pattern, {});
  const struct {
    Mode mode;
    Received expected;
  } rows[] = {{Mode::kInline, {.lane = Lane::kInline, .transport = "grpc", .nbytes = kBytes}},
              {Mode::kShm, {.lane = Lane::kShm, .transport = "local", .nbytes = kBytes}},
              {Mode::kRemote, {.lane = Lane::kRemote, .transport = "tcp", .nbytes = kBytes}},
              {Mode::kAuto, {.lane = Lane::kShm, .transport = "local", .nbytes = kBytes}}};
  for (const auto& row : rows) {
    const auto received = Send(lease, *worker, {.mode = row.mode});
    ASSERT_TRUE(received.ok()) << received.status();
    EXPECT_THAT(*received, ElementsAre(row.expected)) << ModeName(row.mode);
    EXPECT_EQ(bytes(), pattern);
  }
  EXPECT_EQ(rpcs_, 4);
}

TEST_F(LanesTest, ATypedFailureIsSentInlineOnce) {
  PullerOptions closed = Landing(8 << 20);
  closed.allow = AllowList();
  closed.local = false;
  Start(std::make_unique<WorkerProcess>(std::move(closed)));
  const auto worker = WorkerNow();
  const auto pattern = Pattern(kBytes, 3);
  const Lease lease = gateway_->Export(pattern, {});

  const auto received = Send(lease, *worker, {});
  ASSERT_TRUE(received.ok()) << received.status();
  EXPECT_THAT(*received,
              ElementsAre(Received{.lane = Lane::kInline, .transport = "grpc", .nbytes = kBytes}));
  EXPECT_EQ(bytes(), pattern);
  EXPECT_EQ(rpcs_, 2);

  // A lane that was asked for by name fails, in one RPC.
  EXPECT_EQ(ReasonOf(Send(lease, *worker, {.mode = Mode::kRemote}).status()), Reason::kNotAllowed);
  EXPECT_EQ(rpcs_, 3);
}

TEST_F(LanesTest, AWorkerThatKeepsFailingIsAskedTwice) {
  Start(std::make_unique<WorkerProcess>(Landing(8 << 20)));
  const auto worker = WorkerNow();
  answer_ = [](grpc::CallbackServerContext* context) {
    return FailWith(context, MakeError(Reason::kTimedOut, "5 s passed"));
  };
  const Lease lease = gateway_->Export(Pattern(kBytes, 3), {});
  EXPECT_EQ(Send(lease, *worker, {}).status(), MakeError(Reason::kTimedOut, "5 s passed"));
  EXPECT_EQ(rpcs_, 2);
}

TEST_F(LanesTest, AnAmbiguousFailureIsNotRepeated) {
  Start(std::make_unique<WorkerProcess>(Landing(8 << 20)));
  const auto worker = WorkerNow();
  const Lease lease = gateway_->Export(Pattern(kBytes, 3), {});
  int rpcs = 0;
  for (const grpc::StatusCode code :
       {grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::INTERNAL, grpc::StatusCode::UNKNOWN,
        grpc::StatusCode::INVALID_ARGUMENT}) {
    answer_ = [&](grpc::CallbackServerContext*) { return grpc::Status(code, "who knows"); };
    const auto received = Send(lease, *worker, {});
    EXPECT_EQ(received.status().code(), static_cast<absl::StatusCode>(code));
    EXPECT_EQ(rpcs_, ++rpcs);
  }
}

TEST_F(LanesTest, AnotherRoomThanTheHandlesIsBadInput) {
  Start(std::make_unique<WorkerProcess>(Landing(8 << 20)));
  const auto worker = WorkerNow();
  const Lease lease = gateway_->Export(Pattern(kBytes, 3), {.key = 42});
  EncodeRequest request;
  request.add_items()->set_bootstrap_room(43);
  auto* data = request.mutable_mm_inputs()->add_items()->mutable_encoder_input();
  ASSERT_TRUE(
      sender_.Attach(lease, *worker, {.dtype = Dtype::kUint8, .shape = {kBytes}}, data).ok());
  grpc::ClientContext context;
  EXPECT_EQ(Encode(channel_, request, &context).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ReadPullFailure(context)->reason, Reason::kKeyMismatch);
}

TEST_F(LanesTest, ARestartedWorkerThatTakesLessIsNoticedAtOnce) {
  Start(std::make_unique<WorkerProcess>(Landing(8 << 20)));
  const auto before = WorkerNow();
  const auto pattern = Pattern(kBytes, 3);
  const Lease lease = gateway_->Export(pattern, {});
  ASSERT_TRUE(Send(lease, *before, {}).ok());
  EXPECT_EQ(WorkerNow(), before);  // remembered, not asked again

  Start(std::make_unique<WorkerProcess>());  // the same address, inline only
  rpcs_ = 0;
  const auto received = Send(lease, *WorkerNow(), {});  // still believes the old one's word
  ASSERT_TRUE(received.ok()) << received.status();
  EXPECT_THAT(*received,
              ElementsAre(Received{.lane = Lane::kInline, .transport = "grpc", .nbytes = kBytes}));
  EXPECT_EQ(bytes(), pattern);
  EXPECT_EQ(rpcs_, 2);

  const auto after = WorkerNow();
  EXPECT_NE(after->instance_id, before->instance_id);
  EXPECT_THAT(after->lanes, ElementsAre(Lane::kInline));
  rpcs_ = 0;
  ASSERT_TRUE(Send(lease, *after, {}).ok());
  EXPECT_EQ(rpcs_, 1);
}

// Each worker is drained, as operators do, and the next one is another process at its address.
TEST_F(LanesTest, RestartsAndUpgradesOfAWorkerLoseNothing) {
  constexpr uint32_t kNow = wire::kDescriptorVersion, kNewer = kNow + 1;
  Start(std::make_unique<WorkerProcess>(Landing(8 << 20)));
  Traffic traffic(this);
  traffic.AwaitLane(Lane::kShm);
  const struct {
    std::vector<uint32_t> reads;
    Lane lane;
  } starts[] = {{{kNow}, Lane::kShm},
                {{kNow, kNewer}, Lane::kShm},
                {{kNewer}, Lane::kInline},
                {{kNow}, Lane::kShm}};
  for (const auto& start : starts) {
    worker_.Drain();
    process_ = std::make_unique<WorkerProcess>(Landing(8 << 20), start.reads);
    worker_.Serve(process_->transport->service());
    traffic.AwaitLane(start.lane);
  }
}

TEST_F(LanesTest, ADrainOfTheGatewayLosesNothing) {
  Start(std::make_unique<WorkerProcess>(Landing(8 << 20)));
  {
    Traffic traffic(this);
    traffic.AwaitLane(Lane::kShm);
    ASSERT_TRUE(gateway_->Drain(seconds(60)).ok());
    traffic.AwaitLane(Lane::kInline);
  }
  EXPECT_EQ(gateway_->stats().published, 0U);
  EXPECT_EQ(gateway_->stats().used_bytes, 0U);
}

TEST_F(LanesTest, ASlowPullLeavesTimeForTheMessage) {
  PullerOptions options = Landing(kBytes);
  options.local = false;
  Start(std::make_unique<WorkerProcess>(std::move(options)));
  const auto worker = WorkerNow();
  const auto pattern = Pattern(kBytes, 3);
  const Lease lease = gateway_->Export(pattern, {});
  // Somebody holds all landing memory, so that a pull waits until its time is up.
  const auto held = process_->puller->Pull(HandleOf(lease), {.timeout = seconds(60)});
  ASSERT_TRUE(held.ok()) << held.status();

  const auto received = Send(lease, *worker, {}, seconds(6));
  ASSERT_TRUE(received.ok()) << received.status();
  EXPECT_THAT(*received,
              ElementsAre(Received{.lane = Lane::kInline, .transport = "grpc", .nbytes = kBytes}));
  EXPECT_EQ(bytes(), pattern);
  EXPECT_EQ(rpcs_, 2);
}

TEST_F(LanesTest, ManyRequestsAtOnceFromSeveralThreads) {
  Start(std::make_unique<WorkerProcess>(Landing(8 << 20)));
  const auto worker = WorkerNow();
  constexpr int kThreads = 4, kEach = 16;
  constexpr Mode kModes[] = {Mode::kInline, Mode::kShm, Mode::kRemote};
  struct Call {
    Lease lease;
    EncodeRequest request;
    grpc::ClientContext context;
    EncodeResponse response;
    // Shared with the callback, which may still be returning when the answer is there.
    std::shared_ptr<std::promise<grpc::Status>> status =
        std::make_shared<std::promise<grpc::Status>>();
  };
  std::vector<Call> calls(kThreads * kEach);
  const auto stub = TokenSpeedEncoder::NewStub(channel_);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t * kEach; i < (t + 1) * kEach; ++i) {
        Call& call = calls[i];
        const uint32_t nbytes = 1000 + 997 * static_cast<uint32_t>(i);
        call.lease = gateway_->Export(Pattern(nbytes, i), {});
        call.request.add_items()->set_bootstrap_room(call.lease.key());
        const auto sent =
            sender_.Attach(call.lease, *worker,
                           {.dtype = Dtype::kUint8,
                            .shape = {nbytes},
                            .policy = LanePolicy{.mode = kModes[i % 3]}},
                           call.request.mutable_mm_inputs()->add_items()->mutable_encoder_input());
        EXPECT_TRUE(sent.ok()) << sent.status();
        call.context.set_deadline(std::chrono::system_clock::now() + seconds(120));
        stub->async()->Encode(
            &call.context, &call.request, &call.response,
            [status = call.status](grpc::Status s) { status->set_value(std::move(s)); });
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (size_t i = 0; i < calls.size(); ++i) {
    const grpc::Status status = calls[i].status->get_future().get();
    ASSERT_TRUE(status.ok()) << status.error_message();
    const std::vector<Received> received = ReadReceived(calls[i].context);
    ASSERT_EQ(received.size(), 1u);
    EXPECT_EQ(received[0].lane, *NamedLane(kModes[i % 3]));
    EXPECT_EQ(received[0].nbytes, 1000 + 997 * i);
  }
}

}  // namespace
}  // namespace tensorferry
