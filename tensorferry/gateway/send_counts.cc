#include "tensorferry/gateway/send_counts.h"

#include <optional>

#include "tensorferry/base/error.h"
#include "tensorferry/policy/fallback.h"

namespace tensorferry {

SendCounts::SendCounts(const SenderOptions& options)
    : metrics_(options.metrics),
      clock_(options.clock != nullptr ? *options.clock : real_clock_),
      fallbacks_({.metric = Metric::kFallbacks,
                  .metrics = options.metrics,
                  .log = options.log,
                  .limit = options.log_limit,
                  .clock = options.clock}) {}

void SendCounts::FileFailed(EngineProto engine) {
  Count(metrics_, Metric::kShmWriteFailures, {engine});
}

absl::Status SendCounts::Refused(EngineProto engine, absl::Status why) {
  Count(metrics_, Metric::kRefusedTensors, {engine, why});
  return why;
}

void SendCounts::Decided(const LaneQuery& query, const LaneDecision& decision,
                         const AttachOptions& options) {
  for (const Rejection& r : decision.rejected) {
    Count(metrics_, Metric::kLaneRejections, {r.lane, r.reason});
  }
  if (const std::optional<Fallback> f = FallbackOf(query, decision)) {
    fallbacks_.Note(f->from, f->to, f->reason,
                    {.request = options.request, .worker = options.worker});
  }
}

void SendCounts::Attached(const AttachOptions& options, uint64_t nbytes, Attachment* attachment) {
  attachment->engine = options.engine;
  attachment->nbytes = nbytes;
  attachment->request = options.request;
  attachment->worker = options.worker;
  CountMessage(*attachment);
  attachment->attached_at = clock_.Now();
}

void SendCounts::Resent(const Attachment& first, const absl::Status& failure, Attachment* again) {
  again->engine = first.engine;
  again->nbytes = first.nbytes;
  again->request = first.request;
  again->worker = first.worker;
  CountMessage(*again);
  Count(metrics_, Metric::kLaneRejections, {first.lane, LaneReason::kPullFailed});
  fallbacks_.Note(
      first.lane, again->lane, LaneReason::kPullFailed,
      {.request = first.request, .worker = first.worker, .cause = ReasonNameOf(failure)});
  again->attached_at = clock_.Now();
}

void SendCounts::CountMessage(const Attachment& attachment) {
  Count(metrics_, Metric::kMessageTensors, {attachment.engine, attachment.lane});
  Count(metrics_, Metric::kMessageBytes, {attachment.engine, attachment.lane}, attachment.nbytes);
}

void SendCounts::Ended(const Attachment& sent, const absl::Status& status,
                       std::string_view transport) {
  if (!metrics_) return;
  const auto carried = LabelValue::Transport(transport.empty() ? sent.transport : transport);
  metrics_->Add(Metric::kSentTensors, {sent.engine, carried, status});
  metrics_->Add(Metric::kSentBytes, {sent.engine, carried, status}, sent.nbytes);
  if (status.ok()) {
    metrics_->Observe(Metric::kSendDuration, {carried}, clock_.Now() - sent.attached_at);
  }
}

}  // namespace tensorferry
