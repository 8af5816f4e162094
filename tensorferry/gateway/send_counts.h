// What a Sender counts of its tensors, and says of those that had to take another lane.
//
//   SendCounts counts(options);                          // SenderOptions
//   counts.Decided(query, decision, options);
//   counts.Attached(options, nbytes, &attachment);       // from here on it can be told of
//   counts.Ended(attachment, status, "tcp");
//
// Thread-safety: from any thread.
#ifndef TENSORFERRY_GATEWAY_SEND_COUNTS_H_
#define TENSORFERRY_GATEWAY_SEND_COUNTS_H_

#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/gateway/sender.h"
#include "tensorferry/metrics/fallbacks.h"
#include "tensorferry/metrics/metrics.h"

namespace tensorferry {

class SendCounts {
 public:
  explicit SendCounts(const SenderOptions& options);

  void FileFailed(EngineProto engine);
  // Returns `why`, for which no lane was left.
  absl::Status Refused(EngineProto engine, absl::Status why);
  void Decided(const LaneQuery& query, const LaneDecision& decision, const AttachOptions& options);
  void Attached(const AttachOptions& options, uint64_t nbytes, Attachment* attachment);
  // `again` goes instead of `first`, whose pull failed.
  void Resent(const Attachment& first, const absl::Status& failure, Attachment* again);
  void Ended(const Attachment& sent, const absl::Status& status, std::string_view transport);

 private:
  void CountMessage(const Attachment& attachment);

  const std::shared_ptr<Metrics> metrics_;
  const RealClock real_clock_;
  const Clock& clock_;
  Fallbacks fallbacks_;
};

}  // namespace tensorferry

#endif  // TENSORFERRY_GATEWAY_SEND_COUNTS_H_
