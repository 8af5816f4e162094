#include "tensorferry/worker/receiver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <thread>

#include "smg/tokenspeed_scheduler.pb.h"
#include "smg/vllm_engine.pb.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/temp_dir_testing.h"
#include "tensorferry/engine/file/shm_testing.h"
#include "tensorferry/exporter/exporter_testing.h"
#include "tensorferry/gateway/sender.h"
#include "tensorferry/wire/smg_descriptor.h"
#include "tensorferry/worker/describe.h"

namespace tensorferry {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

// Long enough for a loaded machine under a sanitizer; no pull that succeeds waits for it.
constexpr Duration kPatience = seconds(60);

std::unique_ptr<Puller> MakePuller(uint64_t landing_bytes = 8 << 20) {
  PullerOptions options;
  options.landing_bytes = landing_bytes;
  options.prefault = false;
  absl::StatusOr<std::unique_ptr<Puller>> puller = Puller::Create(std::move(options));
  EXPECT_TRUE(puller.ok()) << puller.status();
  return *std::move(puller);
}

// What a callback brings. Shared with the callback, which may still be returning when the answer is
// there.
class Answer {
 public:
  Receiver::Callback callback() const {
    return [promise = promise_](absl::StatusOr<Tensor> t) { promise->set_value(std::move(t)); };
  }
  absl::StatusOr<Tensor> Await() const { return promise_->get_future().get(); }

 private:
  std::shared_ptr<std::promise<absl::StatusOr<Tensor>>> promise_ =
      std::make_shared<std::promise<absl::StatusOr<Tensor>>>();
};

template <class TensorData>
class ReceiverTest : public testing::Test {
 protected:
  ExporterForTest gateway_;
  Sender sender_{&*gateway_, {}};
  std::unique_ptr<Puller> puller_ = MakePuller();
  Receiver receiver_{puller_.get()};
  Capabilities worker_ = DescribeWorker(puller_.get(), 0);

  // A message that carries `lease` by the lane of `mode`.
  TensorData Message(const Lease& lease, Mode mode, Dtype dtype, std::vector<uint32_t> shape) {
    TensorData data;
    const auto sent = sender_.Attach(
        lease, worker_,
        {.dtype = dtype, .shape = std::move(shape), .policy = LanePolicy{.mode = mode}}, &data);
    EXPECT_TRUE(sent.ok()) << sent.status();
    return data;
  }

  absl::StatusOr<Tensor> ReceiveAsync(const TensorData& data, const PullOptions& options) {
    const Answer answer;
    receiver_.ReceiveAsync(data, options, answer.callback());
    return answer.Await();
  }

  // What both forms say about a message that no byte is fetched for.
  void ExpectRefused(const TensorData& data, Reason reason, const std::string& text,
                     std::optional<int64_t> key = std::nullopt) {
    const PullOptions options{.timeout = kPatience, .key = key};
    for (const auto& tensor : {receiver_.Receive(data, options), ReceiveAsync(data, options)}) {
      EXPECT_EQ(ReasonOf(tensor.status()), reason) << tensor.status();
      EXPECT_THAT(std::string(tensor.status().message()), HasSubstr(text));
    }
  }
};

// The field numbers differ: see proto/smg.
using Messages =
    testing::Types<vllm::grpc::engine::TensorData, tokenspeed::grpc::scheduler::TensorData>;
TYPED_TEST_SUITE(ReceiverTest, Messages);

struct Way {
  Mode mode;
  Lane lane;
  std::string_view transport;
};
constexpr Way kWays[] = {{Mode::kInline, Lane::kInline, "grpc"},
                         {Mode::kShm, Lane::kShm, "local"},
                         {Mode::kRemote, Lane::kRemote, "tcp"}};

TYPED_TEST(ReceiverTest, EveryLaneBringsTheBytes) {
  for (const Way& way : kWays) {
    for (const uint32_t rows : {1, 1000, 300'000}) {
      const auto pattern = Pattern(rows * 6, rows);
      const Lease lease = this->gateway_->Export(pattern, {.key = 42});
      const TypeParam data = this->Message(lease, way.mode, Dtype::kBfloat16, {rows, 3});
      const PullOptions options{.timeout = kPatience, .key = 42};
      for (const auto& tensor :
           {this->receiver_.Receive(data, options), this->ReceiveAsync(data, options)}) {
        ASSERT_TRUE(tensor.ok()) << tensor.status();
        EXPECT_EQ(tensor->lane, way.lane);
        EXPECT_EQ(tensor->transport, way.transport);
        EXPECT_EQ(tensor->dtype, Dtype::kBfloat16);
        EXPECT_THAT(tensor->shape, ElementsAre(rows, 3));
        EXPECT_TRUE(std::ranges::equal(tensor->bytes, pattern));
        EXPECT_EQ(tensor->borrowed, way.lane == Lane::kShm);
      }
    }
  }
}

TYPED_TEST(ReceiverTest, InlineBytesAreTheMessages) {
  const Lease lease = this->gateway_->Export(Pattern(100, 1), {});
  const TypeParam data = this->Message(lease, Mode::kInline, Dtype::kUint8, {100});
  const auto tensor = this->receiver_.Receive(data, {});
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(static_cast<const void*>(tensor->bytes.data()), data.inline_().data());
  EXPECT_EQ(tensor->hold, nullptr);
}

TYPED_TEST(ReceiverTest, AnEmptyTensorAndAScalarTravelByEveryLane) {
  const Lease empty = this->gateway_->Export({}, {});
  const auto pattern = Pattern(8, 5);
  const Lease scalar = this->gateway_->Export(pattern, {});
  for (const Way& way : kWays) {
    const auto nothing = this->receiver_.Receive(
        this->Message(empty, way.mode, Dtype::kFloat32, {4, 0, 7}), {.timeout = kPatience});
    ASSERT_TRUE(nothing.ok()) << nothing.status();
    EXPECT_EQ(nothing->lane, way.lane);
    EXPECT_EQ(nothing->bytes.size(), 0u);
    EXPECT_THAT(nothing->shape, ElementsAre(4, 0, 7));

    const TypeParam data = this->Message(scalar, way.mode, Dtype::kInt64, {});
    const auto one = this->receiver_.Receive(data, {.timeout = kPatience});
    ASSERT_TRUE(one.ok()) << one.status();
    EXPECT_EQ(one->lane, way.lane);
    EXPECT_TRUE(std::ranges::equal(one->bytes, pattern));
    EXPECT_THAT(one->shape, testing::IsEmpty());
  }
}

TYPED_TEST(ReceiverTest, TheBytesOutliveThePuller) {
  const auto pattern = Pattern(1 << 20, 5);
  const Lease lease = this->gateway_->Export(pattern, {});
  for (const Mode mode : {Mode::kShm, Mode::kRemote}) {
    const TypeParam data = this->Message(lease, mode, Dtype::kUint8, {1 << 20});
    std::unique_ptr<Puller> puller = MakePuller();
    const auto tensor = Receiver(puller.get()).Receive(data, {.timeout = kPatience});
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    puller.reset();
    EXPECT_TRUE(std::ranges::equal(tensor->bytes, pattern));
  }
}

TYPED_TEST(ReceiverTest, WhatTheMessageTellsIsCheckedFirst) {
  const Lease lease = this->gateway_->Export(Pattern(100, 1), {.key = 42});
  std::vector<TypeParam> messages;
  for (const Way& way : kWays) {
    messages.push_back(this->Message(lease, way.mode, Dtype::kUint8, {100}));
  }
  // Whoever tried to fetch from now on would report that nobody is there.
  this->gateway_.Reset();
  for (const TypeParam& good : messages) {
    TypeParam data = good;
    data.set_shape(0, 101);
    this->ExpectRefused(data, Reason::kSizeMismatch, "100 bytes, but shape [101]");
    data = good;
    data.set_dtype("float64");
    this->ExpectRefused(data, Reason::kUnknownDtype, "\"float64\"");
    data = good;
    data.clear_shape();
    for (int i = 0; i < 5; ++i) data.add_shape(0xffffffff);
    this->ExpectRefused(data, Reason::kBadShape, "2^64");
    if (!good.has_remote()) continue;
    this->ExpectRefused(good, Reason::kKeyMismatch, "42", 43);
    data = good;  // agrees with itself, but not with its descriptor
    data.mutable_remote()->set_nbytes(99);
    data.set_shape(0, 99);
    this->ExpectRefused(data, Reason::kSizeMismatch, "99");
  }
}

TYPED_TEST(ReceiverTest, AMessageWithoutPayloadIsRefused) {
  TypeParam data;
  data.set_dtype("uint8");
  data.add_shape(3);
  this->ExpectRefused(data, Reason::kNoPayload, "[3]");
}

TYPED_TEST(ReceiverTest, HandlesOfOtherKindsAreRefusedByName) {
  TypeParam data;
  data.set_dtype("uint8");
  data.add_shape(3);
  data.mutable_shm()->set_name("smg-tokenspeed-1-2-3");
  data.mutable_shm()->set_nbytes(3);
  this->ExpectRefused(data, Reason::kLaneOff, "/dev/shm");
  data.mutable_remote()->set_transport("nixl");
  data.mutable_remote()->set_nbytes(3);
  SetDescriptor(
      data.mutable_remote(),
      wire::EncodeSmgDescriptor({.slot_addr = 64, .gen = 1, .port = 1, .host = "127.0.0.1"}));
  this->ExpectRefused(data, Reason::kNoCommonWay, "offers nixl");
  data.mutable_remote()->set_transport("carrier-pigeon");
  this->ExpectRefused(data, Reason::kUnknownTransport, "carrier-pigeon");
}

// A worker that reads the files of SMG's gateways.
template <class TensorData>
class FileReceiverTest : public testing::Test {
 protected:
  FileReceiverTest() {
    PullerOptions options;
    options.landing_bytes = 8 << 20;
    options.prefault = false;
    options.file = engine::FilePullOptions{.directory = dir_.path()};
    puller_ = *Puller::Create(std::move(options));
    data_.set_dtype("bfloat16");
    data_.add_shape(300'000);
    data_.add_shape(3);
    data_.mutable_shm()->set_name(kName);
    data_.mutable_shm()->set_nbytes(1'800'000);
    data_.mutable_shm()->set_owner_id("smg:7");
  }

  absl::StatusOr<Tensor> Receive() {
    // EPD workers name the room; a file has no key to compare it with.
    const PullOptions options{.timeout = kPatience, .key = 42};
    const Receiver receiver(puller_.get());
    const Answer answer;
    receiver.ReceiveAsync(data_, options, answer.callback());
    return answer.Await();
  }

  static constexpr char kName[] = "smg-tokenspeed-7-1700000000000000000-0";
  TempDir dir_;
  const std::string path_ = dir_ / kName;
  std::unique_ptr<Puller> puller_;
  TensorData data_;
};
TYPED_TEST_SUITE(FileReceiverTest, Messages);

TYPED_TEST(FileReceiverTest, AFileIsReadAndRemoved) {
  const std::string bytes = engine::Pattern(1'800'000);
  for (const char* name :
       {"smg-tokenspeed-7-1700000000000000000-0", "/smg-tokenspeed-7-1700000000000000000-0"}) {
    engine::PutFile(this->path_, bytes);
    this->data_.mutable_shm()->set_name(name);
    const auto tensor = this->Receive();
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_EQ(tensor->lane, Lane::kShm);
    EXPECT_EQ(tensor->transport, "file");
    EXPECT_EQ(tensor->dtype, Dtype::kBfloat16);
    EXPECT_THAT(tensor->shape, ElementsAre(300'000, 3));
    EXPECT_FALSE(tensor->borrowed);
    EXPECT_TRUE(std::ranges::equal(tensor->bytes, engine::AsBytes(bytes)));
    EXPECT_FALSE(engine::Exists(this->path_));
  }
}

TYPED_TEST(FileReceiverTest, TheSynchronousFormReadsItToo) {
  const std::string bytes = engine::Pattern(1'800'008);
  engine::PutFile(this->path_, bytes);
  this->data_.mutable_shm()->set_offset(8);
  const auto tensor = Receiver(this->puller_.get()).Receive(this->data_, {.timeout = kPatience});
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_TRUE(std::ranges::equal(tensor->bytes, engine::AsBytes(bytes).subspan(8)));
}

TYPED_TEST(FileReceiverTest, AFileThatIsRefusedStays) {
  engine::PutFile(this->path_, engine::Pattern(1'799'999));
  EXPECT_EQ(ReasonOf(this->Receive().status()), Reason::kOutOfRange);
  this->data_.mutable_shm()->set_nbytes(1'799'999);
  EXPECT_EQ(ReasonOf(this->Receive().status()), Reason::kSizeMismatch);
  EXPECT_TRUE(engine::Exists(this->path_));
}

TYPED_TEST(FileReceiverTest, ATensorLargerThanTheLandingMemoryIsRefused) {
  engine::PutFile(this->path_, "");
  this->data_.mutable_shape()->Clear();
  this->data_.add_shape(1 << 30);
  this->data_.add_shape(512);
  this->data_.mutable_shm()->set_nbytes(uint64_t{1} << 40);
  EXPECT_EQ(ReasonOf(this->Receive().status()), Reason::kTooLarge);
  EXPECT_TRUE(engine::Exists(this->path_));
}

TYPED_TEST(ReceiverTest, AFlippedByteOfADescriptorIsRefused) {
  const Lease lease = this->gateway_->Export(Pattern(100, 1), {});
  const TypeParam good = this->Message(lease, Mode::kRemote, Dtype::kUint8, {100});
  for (size_t i = 0; i < good.remote().descriptor().size(); ++i) {
    TypeParam data = good;
    (*data.mutable_remote()->mutable_descriptor())[i] ^= 0x20;
    const auto tensor = this->receiver_.Receive(data, {.timeout = kPatience});
    EXPECT_TRUE(absl::IsInvalidArgument(tensor.status())) << i << ": " << tensor.status();
  }
}

TYPED_TEST(ReceiverTest, AnEndedLeaseIsATypedFailure) {
  for (const Mode mode : {Mode::kShm, Mode::kRemote}) {
    Lease lease = this->gateway_->Export(Pattern(100, 1), {});
    const TypeParam data = this->Message(lease, mode, Dtype::kUint8, {100});
    lease = Lease();
    const auto tensor = this->receiver_.Receive(data, {.timeout = kPatience});
    EXPECT_EQ(ReasonOf(tensor.status()), Reason::kLeaseEnded) << tensor.status();
  }
}

TYPED_TEST(ReceiverTest, WithoutPullerOnlyTheMessageIsTaken) {
  const Receiver receiver(nullptr);
  const Lease lease = this->gateway_->Export(Pattern(100, 1), {});
  EXPECT_TRUE(receiver.Receive(this->Message(lease, Mode::kInline, Dtype::kUint8, {100}), {}).ok());
  const auto tensor =
      receiver.Receive(this->Message(lease, Mode::kRemote, Dtype::kUint8, {100}), {});
  EXPECT_EQ(ReasonOf(tensor.status()), Reason::kLaneOff);
}

TYPED_TEST(ReceiverTest, ManyAtOnceFromSeveralThreads) {
  constexpr int kThreads = 4, kEach = 16;
  std::vector<std::vector<std::byte>> patterns;
  std::vector<Lease> leases;
  std::vector<TypeParam> messages;
  for (int i = 0; i < kThreads * kEach; ++i) {
    const uint32_t nbytes = 1000 + 997 * static_cast<uint32_t>(i);
    patterns.push_back(Pattern(nbytes, i));
    leases.push_back(this->gateway_->Export(patterns.back(), {}));
    messages.push_back(this->Message(leases.back(), kWays[i % 3].mode, Dtype::kUint8, {nbytes}));
  }
  const std::vector<Answer> answers(messages.size());
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t * kEach; i < (t + 1) * kEach; ++i) {
        this->receiver_.ReceiveAsync(messages[i], {.timeout = kPatience}, answers[i].callback());
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (size_t i = 0; i < answers.size(); ++i) {
    const absl::StatusOr<Tensor> tensor = answers[i].Await();
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_EQ(tensor->lane, kWays[i % 3].lane);
    EXPECT_TRUE(std::ranges::equal(tensor->bytes, patterns[i]));
  }
}

TYPED_TEST(ReceiverTest, ACancelledReceiveSaysSo) {
  // Landing memory that is taken: the pull waits for it until it is cancelled.
  const std::unique_ptr<Puller> puller = MakePuller(1 << 20);
  const Receiver receiver(puller.get());
  const Lease lease = this->gateway_->Export(Pattern(1 << 20, 1), {});
  const TypeParam data = this->Message(lease, Mode::kRemote, Dtype::kUint8, {1 << 20});
  const auto taken = receiver.Receive(data, {.timeout = kPatience});
  ASSERT_TRUE(taken.ok()) << taken.status();
  const Cancellation stop = Cancellation::Create();
  const Answer answer;
  receiver.ReceiveAsync(data, {.timeout = kPatience, .cancel = stop}, answer.callback());
  stop.Cancel();
  EXPECT_EQ(ReasonOf(answer.Await().status()), Reason::kCancelled);
}

TYPED_TEST(ReceiverTest, CountsWhatNoPullerSees) {
  const auto metrics = std::make_shared<Metrics>();
  const Receiver receiver(this->puller_.get(), metrics);
  const auto received = [&](std::string_view transport, LabelValue result) {
    return metrics->ValueOf(Metric::kReceivedTensors, {LabelValue::Transport(transport), result});
  };
  const Lease lease = this->gateway_->Export(Pattern(6, 1), {});
  TypeParam data = this->Message(lease, Mode::kInline, Dtype::kUint8, {6});
  ASSERT_TRUE(receiver.Receive(data, {.timeout = kPatience}).ok());
  EXPECT_EQ(received("grpc", absl::OkStatus()), 1U);
  EXPECT_EQ(metrics->ValueOf(Metric::kReceivedBytes, {LabelValue::Transport("grpc")}), 6U);
  data.set_dtype("float32");
  const Answer answer;
  receiver.ReceiveAsync(data, {.timeout = kPatience}, answer.callback());
  EXPECT_FALSE(answer.Await().ok());
  EXPECT_EQ(received("grpc", Reason::kSizeMismatch), 1U);
  EXPECT_EQ(metrics->ValueOf(Metric::kReceivedBytes, {LabelValue::Transport("grpc")}), 6U);
  EXPECT_FALSE(receiver.Receive(TypeParam(), {.timeout = kPatience}).ok());
  EXPECT_EQ(received("", Reason::kUnknownDtype), 1U);
  // What the puller counts is not counted here as well.
  data = this->Message(lease, Mode::kRemote, Dtype::kUint8, {6});
  ASSERT_TRUE(receiver.Receive(data, {.timeout = kPatience}).ok());
  EXPECT_EQ(received("tcp", absl::OkStatus()), 0U);
}

}  // namespace
}  // namespace tensorferry
