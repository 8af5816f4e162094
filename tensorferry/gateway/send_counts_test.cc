#include "tensorferry/gateway/send_counts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "smg/tokenspeed_scheduler.pb.h"
#include "tensorferry/base/temp_dir_testing.h"
#include "tensorferry/base/text.h"
#include "tensorferry/exporter/exporter_testing.h"
#include "tensorferry/gateway/sender_testing.h"
#include "tensorferry/metrics/metrics_testing.h"

namespace tensorferry {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr size_t kBytes = 128 * 1024;
constexpr EngineProto kTokenSpeed = EngineProto::kTokenSpeed;

class SendCountsTest : public testing::Test {
 protected:
  SenderOptions Options() {
    return {.log =
                [this](LogLevel level, std::string_view line) {
                  if (level == LogLevel::kWarning) warnings_.emplace_back(line);
                },
            .log_limit = {.burst = 2, .period = seconds(10)},
            .metrics = metrics_,
            .clock = &clock_};
  }
  absl::StatusOr<Attachment> Attach(const Sender& sender, const Lease& lease,
                                    const LanePolicy& policy = {}) {
    return sender.Attach(lease, WorkerHere(),
                         {.dtype = Dtype::kUint8,
                          .shape = {static_cast<uint32_t>(lease.bytes().size())},
                          .worker = "w:1",
                          .policy = policy,
                          .request = "encode-7"},
                         &data_);
  }
  uint64_t Value(Metric metric, std::initializer_list<LabelValue> values) const {
    return metrics_->ValueOf(metric, values);
  }
  static LabelValue Over(std::string_view transport) { return LabelValue::Transport(transport); }

  std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>();
  std::vector<std::string> warnings_;
  ManualClock clock_;
  ExporterForTest gateway_;
  Sender sender_{&*gateway_, Options()};
  Lease lease_ = gateway_->Export(Pattern(kBytes, 7), {});
  Lease large_ = gateway_->Export(Pattern(16 << 20, 1), {});  // the arena has 8 MiB
  tokenspeed::grpc::scheduler::TensorData data_;
};

TEST_F(SendCountsTest, ATensorIsCountedAsItIsPutIntoItsMessageAndAsItsRpcEnds) {
  const auto sent = Attach(sender_, lease_);
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(Value(Metric::kMessageTensors, {kTokenSpeed, Lane::kShm}), 1U);
  EXPECT_EQ(Value(Metric::kMessageBytes, {kTokenSpeed, Lane::kShm}), kBytes);
  EXPECT_EQ(
      SampleOf(
          *metrics_, Metric::kSentTensors,
          {{"runtime", "tokenspeed"}, {"lane", "shm"}, {"transport", "local"}, {"result", "ok"}}),
      -1)
      << "it is only built";
  clock_.Advance(milliseconds(20));
  sender_.Ended(*sent, absl::OkStatus());
  EXPECT_EQ(Value(Metric::kSentTensors, {kTokenSpeed, Over("local"), absl::OkStatus()}), 1U);
  EXPECT_EQ(Value(Metric::kSentBytes, {kTokenSpeed, Over("local"), absl::OkStatus()}), kBytes);
  const auto took =
      FindSample(*metrics_, Metric::kSendDuration, {{"lane", "shm"}, {"transport", "local"}});
  ASSERT_TRUE(took.has_value());
  EXPECT_EQ(took->count, 1U);
  EXPECT_NEAR(took->sum, 0.02, 1e-9);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(SendCountsTest, TheWorkersWordOnWhatCarriedItCounts) {
  const auto sent = Attach(sender_, lease_);
  ASSERT_TRUE(sent.ok()) << sent.status();
  sender_.Ended(*sent, absl::OkStatus(), "tcp");
  EXPECT_EQ(Value(Metric::kSentTensors, {kTokenSpeed, Over("tcp"), absl::OkStatus()}), 1U);
  // But it makes no label of its own.
  sender_.Ended(*sent, absl::OkStatus(), "x\"} 1\n");
  EXPECT_EQ(SampleOf(*metrics_, Metric::kSentTensors,
                     {{"runtime", "tokenspeed"},
                      {"lane", "remote"},
                      {"transport", "other"},
                      {"result", "ok"}}),
            1);
}

TEST_F(SendCountsTest, AnRpcThatFailedIsCountedByItsReason) {
  const auto sent = Attach(sender_, lease_);
  ASSERT_TRUE(sent.ok()) << sent.status();
  const absl::Status gone = absl::UnavailableError("the worker is gone");
  sender_.Ended(*sent, gone);
  EXPECT_EQ(Value(Metric::kSentTensors, {kTokenSpeed, Over("local"), gone}), 1U);
  EXPECT_EQ(SampleOf(*metrics_, Metric::kSentBytes,
                     {{"runtime", "tokenspeed"},
                      {"lane", "shm"},
                      {"transport", "local"},
                      {"result", "unavailable"}}),
            kBytes);
  EXPECT_EQ(SampleOf(*metrics_, Metric::kSendDuration, {{"lane", "shm"}, {"transport", "local"}}),
            -1);
}

TEST_F(SendCountsTest, AFullArenaIsAFallbackThatIsSaid) {
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Attach(sender_, large_).ok());
  EXPECT_EQ(Value(Metric::kFallbacks, {Lane::kShm, Lane::kInline, LaneReason::kArenaFull}), 5U);
  EXPECT_EQ(Value(Metric::kLaneRejections, {Lane::kShm, LaneReason::kArenaFull}), 5U);
  EXPECT_EQ(Value(Metric::kLaneRejections, {Lane::kRemote, LaneReason::kArenaFull}), 5U);
  EXPECT_EQ(Value(Metric::kMessageTensors, {kTokenSpeed, Lane::kInline}), 5U);
  const std::string line =
      "fallback request=encode-7 worker=w:1 from=shm to=inline reason=arena_full suppressed=";
  EXPECT_THAT(warnings_, ElementsAre(line + "0", line + "0"));
  clock_.Advance(seconds(10));
  ASSERT_TRUE(Attach(sender_, large_).ok());
  EXPECT_EQ(warnings_.back(), line + "3");
}

TEST_F(SendCountsTest, WhatIsSentAgainAfterAFailedPullIsAFallback) {
  const auto first = Attach(sender_, lease_);
  ASSERT_TRUE(first.ok()) << first.status();
  const PullFailure failure = {.reason = Reason::kTimedOut, .message = "x", .retryable = true};
  const auto again = sender_.AttachInline(lease_, *first, failure, &data_);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(Value(Metric::kSentTensors, {kTokenSpeed, Over("local"), Reason::kTimedOut}), 1U);
  EXPECT_EQ(Value(Metric::kFallbacks, {Lane::kShm, Lane::kInline, LaneReason::kPullFailed}), 1U);
  EXPECT_EQ(Value(Metric::kLaneRejections, {Lane::kShm, LaneReason::kPullFailed}), 1U);
  EXPECT_EQ(Value(Metric::kMessageTensors, {kTokenSpeed, Lane::kInline}), 1U);
  EXPECT_THAT(warnings_, ElementsAre("fallback request=encode-7 worker=w:1 from=shm to=inline "
                                     "reason=pull_failed cause=timed_out suppressed=0"));
  sender_.Ended(*again, absl::OkStatus());
  EXPECT_EQ(Value(Metric::kSentTensors, {kTokenSpeed, Over("grpc"), absl::OkStatus()}), 1U);
}

TEST_F(SendCountsTest, AFailureThatNoOtherLaneHelpsIsTheEnd) {
  const auto first = Attach(sender_, lease_);
  ASSERT_TRUE(first.ok()) << first.status();
  const PullFailure failure = {.reason = Reason::kKeyMismatch, .message = "x"};
  ASSERT_FALSE(sender_.AttachInline(lease_, *first, failure, &data_).ok());
  EXPECT_EQ(Value(Metric::kSentTensors, {kTokenSpeed, Over("local"), Reason::kKeyMismatch}), 1U);
  EXPECT_EQ(SampleOf(*metrics_, Metric::kFallbacks,
                     {{"from", "shm"}, {"to", "inline"}, {"reason", "pull_failed"}}),
            -1);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(SendCountsTest, ATensorThatNoLaneTakesIsRefused) {
  ASSERT_FALSE(Attach(sender_, large_, {.mode = Mode::kRemote}).ok());
  EXPECT_EQ(Value(Metric::kRefusedTensors, {kTokenSpeed, Reason::kArenaFull}), 1U);
  EXPECT_EQ(Value(Metric::kMessageTensors, {kTokenSpeed, Lane::kRemote}), 0U);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(SendCountsTest, AFileThatCannotBeWrittenIsCounted) {
  SenderOptions options = Options();
  const TempDir dir;
  options.files = *engine::ShmFiles::Open({.sweep = {.directory = dir.path()}});
  const Sender sender(nullptr, options);
  std::filesystem::remove_all(dir.path());
  Capabilities stock;
  const AttachOptions attach = {.dtype = Dtype::kUint8,
                                .shape = {kBytes},
                                .engine = EngineProto::kVllm,
                                .policy = LanePolicy{.mode = Mode::kShm, .allow_fallback = true}};
  ASSERT_TRUE(sender.Attach(lease_, stock, attach, &data_).ok());
  EXPECT_EQ(Value(Metric::kShmWriteFailures, {EngineProto::kVllm}), 1U);
  EXPECT_EQ(Value(Metric::kFallbacks, {Lane::kShm, Lane::kInline, LaneReason::kShmFailed}), 1U);
  EXPECT_EQ(Value(Metric::kMessageTensors, {EngineProto::kVllm, Lane::kInline}), 1U);
}

TEST_F(SendCountsTest, WithoutMetricsAFallbackIsSaidAllTheSame) {
  SenderOptions options = Options();
  options.metrics = nullptr;
  const Sender sender(&*gateway_, options);
  const auto sent = Attach(sender, large_);
  ASSERT_TRUE(sent.ok()) << sent.status();
  sender.Ended(*sent, absl::OkStatus());
  EXPECT_EQ(warnings_.size(), 1U);
}

}  // namespace
}  // namespace tensorferry
