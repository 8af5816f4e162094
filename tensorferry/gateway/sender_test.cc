#include "tensorferry/gateway/sender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "smg/tokenspeed_scheduler.pb.h"
#include "smg/vllm_engine.pb.h"
#include "tensorferry/base/host.h"
#include "tensorferry/base/temp_dir_testing.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/file/shm_testing.h"
#include "tensorferry/exporter/exporter_testing.h"
#include "tensorferry/gateway/sender_testing.h"
#include "tensorferry/wire/descriptor.h"

namespace tensorferry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr size_t kBytes = 128 * 1024;

AttachOptions Named(Mode mode, bool allow_fallback = false) {
  return {.dtype = Dtype::kUint8,
          .shape = {kBytes},
          .policy = LanePolicy{.mode = mode, .allow_fallback = allow_fallback}};
}

std::vector<std::string> WaysOf(const std::string& descriptor) {
  const auto decoded = wire::DecodeDescriptor(std::as_bytes(std::span(descriptor)));
  EXPECT_TRUE(decoded.ok()) << decoded.status();
  std::vector<std::string> out;
  for (const wire::Way& way : decoded->ways) {
    out.push_back(std::holds_alternative<wire::LocalWay>(way) ? "local" : "tcp");
  }
  return out;
}

template <class TensorData>
class SenderTest : public testing::Test {
 protected:
  ExporterForTest gateway_;
  Sender sender_{&*gateway_, {}};
  std::vector<std::byte> pattern_ = Pattern(kBytes, 7);
  Lease lease_ = gateway_->Export(pattern_, {.key = 42});
  TensorData data_;

  bool HoldsThePattern() const {
    return std::ranges::equal(std::as_bytes(std::span(data_.inline_())), pattern_);
  }
};

// The field numbers differ: see proto/smg.
using Messages =
    testing::Types<vllm::grpc::engine::TensorData, tokenspeed::grpc::scheduler::TensorData>;
TYPED_TEST_SUITE(SenderTest, Messages);

TYPED_TEST(SenderTest, InlineCarriesTheBytes) {
  const auto sent = this->sender_.Attach(this->lease_, WorkerHere(),
                                         {.dtype = Dtype::kBfloat16,
                                          .shape = {kBytes / 4, 2},
                                          .policy = LanePolicy{.mode = Mode::kInline}},
                                         &this->data_);
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(sent->lane, Lane::kInline);
  EXPECT_EQ(sent->transport, "grpc");
  EXPECT_EQ(sent->reason, LaneReason::kMode);
  EXPECT_EQ(this->data_.dtype(), "bfloat16");
  EXPECT_THAT(this->data_.shape(), ElementsAre(kBytes / 4, 2));
  EXPECT_EQ(this->data_.payload_case(), TypeParam::kInline);
  EXPECT_TRUE(this->HoldsThePattern());
}

TYPED_TEST(SenderTest, ANamedLaneLimitsTheWays) {
  for (const auto& [mode, way] : {std::pair{Mode::kShm, "local"}, {Mode::kRemote, "tcp"}}) {
    const auto sent = this->sender_.Attach(this->lease_, WorkerHere(), Named(mode), &this->data_);
    ASSERT_TRUE(sent.ok()) << sent.status();
    EXPECT_EQ(sent->lane, *NamedLane(mode));
    EXPECT_EQ(sent->transport, way);
    EXPECT_FALSE(sent->may_go_inline);
    ASSERT_EQ(this->data_.payload_case(), TypeParam::kRemote);
    EXPECT_EQ(this->data_.remote().transport(), "tensorferry");
    EXPECT_EQ(this->data_.remote().nbytes(), kBytes);
    EXPECT_THAT(WaysOf(this->data_.remote().descriptor()), ElementsAre(way));
    EXPECT_EQ(this->data_.dtype(), "uint8");
  }
}

TYPED_TEST(SenderTest, AutoPermitsBothWaysOnTheSameHost) {
  const auto sent = this->sender_.Attach(this->lease_, WorkerHere(),
                                         {.dtype = Dtype::kUint8, .shape = {kBytes}}, &this->data_);
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(sent->lane, Lane::kShm);
  EXPECT_EQ(sent->reason, LaneReason::kPreferred);
  EXPECT_TRUE(sent->may_go_inline);
  EXPECT_THAT(WaysOf(this->data_.remote().descriptor()), ElementsAre("local", "tcp"));
}

TYPED_TEST(SenderTest, AutoUsesTheNetworkBetweenHosts) {
  const auto sent = this->sender_.Attach(this->lease_, WorkerElsewhere(),
                                         {.dtype = Dtype::kUint8, .shape = {kBytes}}, &this->data_);
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(sent->lane, Lane::kRemote);
  EXPECT_EQ(sent->reason, LaneReason::kOtherHost);
  EXPECT_THAT(sent->rejected, ElementsAre(Rejection{Lane::kShm, LaneReason::kOtherHost}));
  EXPECT_THAT(WaysOf(this->data_.remote().descriptor()), ElementsAre("tcp"));
}

TYPED_TEST(SenderTest, WhatAnAttachmentSaysIsOneLine) {
  const auto sent = this->sender_.Attach(this->lease_, WorkerElsewhere(),
                                         {.dtype = Dtype::kUint8, .shape = {kBytes}}, &this->data_);
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(sent->ToString(), "lane=remote transport=tcp reason=other_host not=shm:other_host");
}

TYPED_TEST(SenderTest, AnEngineThatStillStartsIsTakenOnceItRuns) {
  auto taken = Exporter::Create({.arena_bytes = 4096, .listen = "127.0.0.1:0"});
  ExporterForTest gateway([&](ExporterOptions* options) {
    options->listen = (*taken)->listen_address();
    options->local_socket.clear();
    options->background = true;
  });
  const Sender sender(&*gateway, {});
  const AttachOptions options{.dtype = Dtype::kUint8, .shape = {kBytes}};
  Lease lease = gateway->Export(this->pattern_, {});
  auto sent = sender.Attach(lease, WorkerElsewhere(), options, &this->data_);
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(sent->ToString(),
            "lane=inline transport=grpc reason=lane_off not=shm:lane_off,remote:starting");
  EXPECT_TRUE(this->HoldsThePattern());
  sent = sender.Attach(lease, WorkerElsewhere(), Named(Mode::kRemote), &this->data_);
  EXPECT_EQ(ReasonOf(sent.status()), Reason::kLaneOff);
  EXPECT_THAT(sent.status().message(), HasSubstr("tcp does not run yet"));

  taken->reset();
  ASSERT_TRUE(gateway->WaitStarted(std::chrono::seconds(60)).ok());
  lease = gateway->Export(this->pattern_, {});
  sent = sender.Attach(lease, WorkerElsewhere(), options, &this->data_);
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(sent->lane, Lane::kRemote);
}

TYPED_TEST(SenderTest, ANamedNetworkWithFallbackIsNotTakenOverByMemory) {
  const auto sent =
      this->sender_.Attach(this->lease_, WorkerHere(), Named(Mode::kRemote, true), &this->data_);
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(sent->lane, Lane::kRemote);
  EXPECT_TRUE(sent->may_go_inline);
  EXPECT_THAT(WaysOf(this->data_.remote().descriptor()), ElementsAre("tcp"));
}

TYPED_TEST(SenderTest, AFullArenaSendsTheBytes) {
  const std::vector<std::byte> large = Pattern(16 << 20, 1);  // the arena has 8 MiB
  const Lease lease = this->gateway_->Export(large, {});
  const auto sent = this->sender_.Attach(
      lease, WorkerHere(), {.dtype = Dtype::kUint8, .shape = {16 << 20}}, &this->data_);
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(sent->lane, Lane::kInline);
  EXPECT_EQ(sent->reason, LaneReason::kArenaFull);
  EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(this->data_.inline_())), large));

  AttachOptions named = Named(Mode::kRemote);
  named.shape = {16 << 20};
  const auto refused = this->sender_.Attach(lease, WorkerHere(), named, &this->data_);
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kArenaFull) << refused.status();
}

TYPED_TEST(SenderTest, ADuplicateKeySendsTheBytes) {
  const Lease second = this->gateway_->Export(this->pattern_, {.key = 42});
  const auto sent = this->sender_.Attach(second, WorkerHere(),
                                         {.dtype = Dtype::kUint8, .shape = {kBytes}}, &this->data_);
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(sent->reason, LaneReason::kDuplicateKey);
  EXPECT_TRUE(this->HoldsThePattern());
}

TYPED_TEST(SenderTest, AClosedExporterSendsTheBytes) {
  this->gateway_->Close();
  const Lease lease = this->gateway_->Export(this->pattern_, {});
  const auto sent = this->sender_.Attach(lease, WorkerHere(),
                                         {.dtype = Dtype::kUint8, .shape = {kBytes}}, &this->data_);
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(sent->lane, Lane::kInline);
  EXPECT_EQ(sent->reason, LaneReason::kShutDown);
  EXPECT_TRUE(this->HoldsThePattern());
}

TYPED_TEST(SenderTest, ALeaseWithoutExporterGoesInline) {
  const Sender sender(nullptr, {});
  const auto sent = sender.Attach(this->lease_, WorkerHere(),
                                  {.dtype = Dtype::kUint8, .shape = {kBytes}}, &this->data_);
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(sent->reason, LaneReason::kLaneOff);
  EXPECT_TRUE(this->HoldsThePattern());
}

TYPED_TEST(SenderTest, ARefusalLeavesTheMessageAsItWas) {
  this->data_.set_dtype("before");
  const auto wrong_size = this->sender_.Attach(
      this->lease_, WorkerHere(), {.dtype = Dtype::kFloat32, .shape = {kBytes}}, &this->data_);
  EXPECT_EQ(ReasonOf(wrong_size.status()), Reason::kSizeMismatch);
  const auto no_lane =
      this->sender_.Attach(this->lease_, WorkerElsewhere(), Named(Mode::kShm), &this->data_);
  EXPECT_EQ(ReasonOf(no_lane.status()), Reason::kOtherHost);
  EXPECT_THAT(std::string(no_lane.status().message()), HasSubstr("use remote between hosts"));
  EXPECT_EQ(this->data_.dtype(), "before");
  EXPECT_EQ(this->data_.payload_case(), TypeParam::PAYLOAD_NOT_SET);
  EXPECT_EQ(this->data_.shape_size(), 0);
}

TYPED_TEST(SenderTest, EmptyAndScalarTensorsTakeANamedLane) {
  const Lease empty = this->gateway_->Export({}, {});
  const Lease scalar = this->gateway_->Export(Pattern(4, 1), {});
  for (const Mode mode : {Mode::kInline, Mode::kShm, Mode::kRemote}) {
    AttachOptions options = Named(mode);
    options.dtype = Dtype::kFloat32;
    options.shape = {3, 0, 5};
    const auto sent = this->sender_.Attach(empty, WorkerHere(), options, &this->data_);
    ASSERT_TRUE(sent.ok()) << sent.status();
    EXPECT_EQ(sent->lane, *NamedLane(mode));
    EXPECT_THAT(this->data_.shape(), ElementsAre(3, 0, 5));
    options.shape = {};
    const auto second = this->sender_.Attach(scalar, WorkerHere(), options, &this->data_);
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_EQ(second->lane, *NamedLane(mode));
    EXPECT_THAT(this->data_.shape(), IsEmpty());
  }
  const auto sent = this->sender_.Attach(
      empty, WorkerHere(), {.dtype = Dtype::kFloat32, .shape = {3, 0, 5}}, &this->data_);
  EXPECT_EQ(sent->reason, LaneReason::kEmpty);
  EXPECT_EQ(this->data_.payload_case(), TypeParam::kInline);
}

TYPED_TEST(SenderTest, AFailedPullIsSentInlineOnce) {
  const auto first = this->sender_.Attach(
      this->lease_, WorkerHere(), {.dtype = Dtype::kUint8, .shape = {kBytes}}, &this->data_);
  ASSERT_TRUE(first.ok()) << first.status();
  const PullFailure failure = {
      .reason = Reason::kTimedOut, .message = "5 s passed", .retryable = true};
  const auto second = this->sender_.AttachInline(this->lease_, *first, failure, &this->data_);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->lane, Lane::kInline);
  EXPECT_EQ(second->transport, "grpc");
  EXPECT_EQ(second->reason, LaneReason::kPullFailed);
  EXPECT_THAT(second->rejected, ElementsAre(Rejection{Lane::kShm, LaneReason::kPullFailed}));
  EXPECT_EQ(this->data_.payload_case(), TypeParam::kInline);
  EXPECT_THAT(this->data_.shape(), ElementsAre(kBytes));
  EXPECT_TRUE(this->HoldsThePattern());

  const auto third = this->sender_.AttachInline(this->lease_, *second, failure, &this->data_);
  EXPECT_EQ(third.status(), MakeError(Reason::kTimedOut, "5 s passed"));
}

TYPED_TEST(SenderTest, SomeFailuresAreFinal) {
  const auto first = this->sender_.Attach(
      this->lease_, WorkerHere(), {.dtype = Dtype::kUint8, .shape = {kBytes}}, &this->data_);
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string before = this->data_.SerializeAsString();
  for (const Reason reason : {Reason::kSizeMismatch, Reason::kUnknownDtype, Reason::kKeyMismatch,
                              Reason::kCancelled, Reason::kShutDown}) {
    const auto again = this->sender_.AttachInline(this->lease_, *first,
                                                  {.reason = reason, .message = "x"}, &this->data_);
    EXPECT_EQ(ReasonOf(again.status()), reason);
  }
  // A reason of a newer worker: its own word on retrying counts.
  EXPECT_FALSE(
      this->sender_
          .AttachInline(this->lease_, *first, {.message = "x", .retryable = false}, &this->data_)
          .ok());
  EXPECT_EQ(this->data_.SerializeAsString(), before);
  EXPECT_TRUE(
      this->sender_
          .AttachInline(this->lease_, *first, {.message = "x", .retryable = true}, &this->data_)
          .ok());
}

TYPED_TEST(SenderTest, ANamedLaneIsNeverResent) {
  const PullFailure failure = {.reason = Reason::kUnreachable, .message = "x"};
  const auto first =
      this->sender_.Attach(this->lease_, WorkerHere(), Named(Mode::kRemote), &this->data_);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(
      ReasonOf(this->sender_.AttachInline(this->lease_, *first, failure, &this->data_).status()),
      Reason::kUnreachable);

  const auto allowed =
      this->sender_.Attach(this->lease_, WorkerHere(), Named(Mode::kRemote, true), &this->data_);
  ASSERT_TRUE(allowed.ok()) << allowed.status();
  EXPECT_TRUE(this->sender_.AttachInline(this->lease_, *allowed, failure, &this->data_).ok());
}

TYPED_TEST(SenderTest, ATensorTooLargeForAMessageIsNotResent) {
  Capabilities worker = WorkerHere();
  worker.max_inline_bytes = kBytes;
  const auto first = this->sender_.Attach(
      this->lease_, worker, {.dtype = Dtype::kUint8, .shape = {kBytes}}, &this->data_);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(this->sender_
                   .AttachInline(this->lease_, *first,
                                 {.reason = Reason::kTimedOut, .message = "x"}, &this->data_)
                   .ok());
}

// A gateway that writes files, too.
template <class TensorData>
class FileSenderTest : public SenderTest<TensorData> {
 protected:
  FileSenderTest() {
    files_ = *engine::ShmFiles::Open({.sweep = {.directory = dir_.path()}});
    sender_ = std::make_unique<Sender>(&*this->gateway_, SenderOptions{.files = files_});
  }

  absl::StatusOr<Attachment> Attach(const Capabilities& worker, Mode mode,
                                    bool allow_fallback = false) {
    return sender_->Attach(this->lease_, worker, Named(mode, allow_fallback), &this->data_);
  }
  // What lies in the directory cannot be written any more, nor anything else.
  void TakeTheDirectoryAway() { std::filesystem::remove_all(dir_.path()); }

  TempDir dir_;
  std::shared_ptr<engine::ShmFiles> files_;
  std::unique_ptr<Sender> sender_;
};
TYPED_TEST_SUITE(FileSenderTest, Messages);

TYPED_TEST(FileSenderTest, AStockWorkerGetsAFileThatLivesAsLongAsTheAttachment) {
  auto sent = this->Attach(Capabilities(), Mode::kShm);
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(sent->lane, Lane::kShm);
  EXPECT_EQ(sent->transport, "file");
  EXPECT_EQ(sent->reason, LaneReason::kMode);
  ASSERT_EQ(this->data_.payload_case(), TypeParam::kShm);
  const auto& shm = this->data_.shm();
  EXPECT_THAT(engine::FilesIn(this->dir_.path()), ElementsAre(shm.name()));
  EXPECT_EQ(shm.offset(), 0u);
  EXPECT_EQ(shm.nbytes(), kBytes);
  EXPECT_EQ(shm.owner_id(), StrCat("smg:", ::getpid()));
  EXPECT_EQ(this->data_.dtype(), "uint8");
  EXPECT_TRUE(std::ranges::equal(engine::AsBytes(engine::BytesOf(this->dir_ / shm.name())),
                                 this->pattern_));
  // Whatever became of the request: also when the sender has gone before.
  this->sender_.reset();
  this->files_.reset();
  const Attachment copy = *sent;
  sent = absl::CancelledError();
  EXPECT_TRUE(engine::Exists(this->dir_ / shm.name()));
}

TYPED_TEST(FileSenderTest, NothingIsLeftWhenTheAttachmentGoes) {
  { ASSERT_TRUE(this->Attach(Capabilities(), Mode::kShm).ok()); }
  EXPECT_THAT(engine::FilesIn(this->dir_.path()), IsEmpty());
}

// A retry, and each of several workers, reads a file of its own.
TYPED_TEST(FileSenderTest, EachAttachWritesItsOwnFile) {
  const auto first = this->Attach(Capabilities(), Mode::kShm);
  const std::string name = this->data_.shm().name();
  const auto second = this->Attach(Capabilities(), Mode::kShm);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(this->data_.shm().name(), name);
  EXPECT_EQ(engine::FilesIn(this->dir_.path()).size(), 2u);
}

TYPED_TEST(FileSenderTest, OurOwnWorkerMapsInstead) {
  Capabilities worker = WorkerHere();
  worker.transports.emplace_back("file");
  const auto sent = this->Attach(worker, Mode::kShm);
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(sent->transport, "local");
  EXPECT_EQ(this->data_.payload_case(), TypeParam::kRemote);
  EXPECT_THAT(engine::FilesIn(this->dir_.path()), IsEmpty());
}

TYPED_TEST(FileSenderTest, AFullArenaLeavesTheFile) {
  Capabilities worker = WorkerHere();
  worker.transports.emplace_back("file");
  const Lease lease = this->gateway_->Export(Pattern(16 << 20, 1), {});  // the arena has 8 MiB
  const auto sent = this->sender_->Attach(
      lease, worker, {.dtype = Dtype::kUint8, .shape = {16 << 20}}, &this->data_);
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(sent->transport, "file");
}

TYPED_TEST(FileSenderTest, AStockWorkerOfAnotherUserIsFoundOutBefore) {
  Capabilities worker;
  worker.host.uid = ::geteuid() + 1;
  const auto refused = this->Attach(worker, Mode::kShm);
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kUidMismatch);
  const auto sent = this->Attach(worker, Mode::kShm, /*allow_fallback=*/true);
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(sent->lane, Lane::kInline);
  EXPECT_EQ(sent->reason, LaneReason::kUidDiffers);
  EXPECT_THAT(engine::FilesIn(this->dir_.path()), IsEmpty());
  EXPECT_EQ(this->files_->stats().written, 0u);
}

TYPED_TEST(FileSenderTest, AFileThatCannotBeWrittenLeavesTheNextLane) {
  this->TakeTheDirectoryAway();
  this->data_.set_dtype("before");
  const auto refused = this->Attach(Capabilities(), Mode::kShm);
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kSystem);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("shm_failed"));
  EXPECT_EQ(this->data_.dtype(), "before");
  const auto sent = this->Attach(Capabilities(), Mode::kShm, /*allow_fallback=*/true);
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(sent->lane, Lane::kInline);
  EXPECT_EQ(sent->reason, LaneReason::kShmFailed);
  EXPECT_THAT(sent->rejected, testing::Contains(Rejection{Lane::kShm, LaneReason::kShmFailed}));
  EXPECT_TRUE(this->HoldsThePattern());
}

TYPED_TEST(FileSenderTest, AFailedPullOfAFileIsSentInlineAndTheFileGoes) {
  Capabilities worker = WorkerHere();
  worker.transports = {"grpc", "file"};
  auto sent = this->Attach(worker, Mode::kAuto);
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(sent->transport, "file");
  sent = this->sender_->AttachInline(this->lease_, *sent,
                                     {.reason = Reason::kLeaseEnded, .message = "x"}, &this->data_);
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_THAT(engine::FilesIn(this->dir_.path()), IsEmpty());
  EXPECT_TRUE(this->HoldsThePattern());
}

// A gateway that serves nixl, and a worker of SMG's that says nothing of itself.
class NixlSenderTest : public testing::Test {
 protected:
  absl::StatusOr<Attachment> Attach(const Capabilities& worker, const std::string& name,
                                    bool assume_pull = true) {
    const Lease lease = gateway_->Export(Pattern(kBytes, 7), {.readers = 1});
    return sender_.Attach(lease, worker,
                          {.dtype = Dtype::kUint8,
                           .shape = {kBytes},
                           .worker = name,
                           .policy = LanePolicy{.mode = Mode::kAuto, .assume_pull = assume_pull}},
                          &data_);
  }
  std::string TransportTo(const Capabilities& worker, const std::string& name) {
    const auto sent = Attach(worker, name);
    return sent.ok() ? std::string(sent->transport) : std::string(sent.status().message());
  }

  OneSidedEngine* engine_ = nullptr;
  ExporterForTest gateway_{OneSidedEngine::Into(&engine_)};
  Sender sender_{&*gateway_, {}};
  tokenspeed::grpc::scheduler::TensorData data_;
};

TEST_F(NixlSenderTest, AStockWorkerIsAssumedToPullOnlyWhenTheOperatorSaysSo) {
  const auto sent = Attach(Capabilities(), "w");
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(sent->transport, "nixl");
  EXPECT_EQ(sent->reason, LaneReason::kAssumed);
  EXPECT_EQ(data_.remote().transport(), "nixl");
  EXPECT_EQ(engine_->published.size(), 1U);

  const auto unsaid = Attach(Capabilities(), "w", /*assume_pull=*/false);
  ASSERT_TRUE(unsaid.ok()) << unsaid.status();
  EXPECT_EQ(unsaid->lane, Lane::kInline);
  EXPECT_THAT(unsaid->rejected,
              testing::Contains(Rejection{Lane::kRemote, LaneReason::kNotAdvertised}));
  EXPECT_EQ(engine_->published.size(), 1U);
}

// SMG's puller never lets go of the first agent that it met.
TEST_F(NixlSenderTest, AStockWorkerGetsLeasesOfTheFirstAgentThatItMetOnly) {
  EXPECT_EQ(TransportTo(Capabilities(), "old"), "nixl");
  EXPECT_EQ(TransportTo(Capabilities(), ""), "nixl");
  engine_->agents_started = 2;
  const auto sent = Attach(Capabilities(), "old");
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(sent->lane, Lane::kInline);
  EXPECT_THAT(sent->rejected,
              testing::Contains(Rejection{Lane::kRemote, LaneReason::kAgentRestarted}));
  EXPECT_EQ(TransportTo(Capabilities(), ""), "grpc") << "it may be one that met the first agent";
  EXPECT_EQ(TransportTo(Capabilities(), "new"), "nixl");
  Capabilities ours = WorkerElsewhere();
  ours.transports = {"grpc", "nixl"};
  EXPECT_EQ(TransportTo(ours, "ours"), "nixl") << "it notices by itself";

  sender_.WorkerRestarted("old");
  EXPECT_EQ(TransportTo(Capabilities(), "old"), "nixl");
  engine_->agents_started = 0;  // none at all
  EXPECT_EQ(TransportTo(Capabilities(), "old"), "grpc");
  EXPECT_EQ(TransportTo(ours, "ours"), "grpc");
}

TEST_F(NixlSenderTest, AWorkerHasMetNoAgentThatItWasNotSentTo) {
  const auto sent = Attach(Capabilities(), "w", /*assume_pull=*/false);
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(sent->lane, Lane::kInline);
  engine_->agents_started = 2;
  EXPECT_EQ(TransportTo(Capabilities(), "w"), "nixl");
}

TEST_F(NixlSenderTest, WhileMuchOfTheArenaRestsBytesGoInline) {
  for (int unheard = 0; unheard < 8; ++unheard) {  // of 8 MiB
    const Lease lease = gateway_->Export(Pattern(size_t{512} << 10, 1), {.readers = 1});
    ASSERT_TRUE(lease.SmgDescriptor().ok());
  }
  ASSERT_GT(gateway_->stats().resting_bytes, uint64_t{2} << 20);
  const auto sent = Attach(Capabilities(), "w");
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(sent->lane, Lane::kInline);
  EXPECT_THAT(sent->rejected, testing::Contains(Rejection{Lane::kRemote, LaneReason::kResting}));
}

TYPED_TEST(SenderTest, LogsLaneAndReason) {
  std::vector<std::string> lines;
  const Sender sender(&*this->gateway_, {.log = [&](LogLevel level, std::string_view line) {
    // Of fallbacks see SendCountsTest.
    if (level == LogLevel::kDebug) lines.emplace_back(line);
  }});
  const auto first = sender.Attach(this->lease_, WorkerElsewhere(),
                                   {.dtype = Dtype::kUint8, .shape = {kBytes}}, &this->data_);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(sender
                  .AttachInline(this->lease_, *first,
                                {.reason = Reason::kTimedOut, .message = "5 s passed"},
                                &this->data_)
                  .ok());
  EXPECT_THAT(lines, ElementsAre(StrCat("attach: nbytes=", kBytes, " lane=remote transport=tcp ",
                                        "reason=other_host not=shm:other_host"),
                                 "attach: inline after remote failed: 5 s passed"));
}

}  // namespace
}  // namespace tensorferry
