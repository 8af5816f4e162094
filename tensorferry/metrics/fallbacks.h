// Counts fallbacks and says so: one line for each, of many alike only the first few.
//
//   Fallbacks fallbacks({.metric = Metric::kFallbacks, .metrics = metrics, .log = log});
//   fallbacks.Note(Lane::kRemote, Lane::kInline, LaneReason::kArenaFull, {.request = id});
//
// gives "fallback request=encode-7 from=remote to=inline reason=arena_full suppressed=0". The line
// is for programs to read, too: pairs of key and value without blanks in them. Names that others
// chose, such as a request's id, are cut off and escaped. `suppressed` is how many of the same
// from, to and reason got no line since the last one that did; the metric counts every one.
// Thread-safety: from any thread.
#ifndef TENSORFERRY_METRICS_FALLBACKS_H_
#define TENSORFERRY_METRICS_FALLBACKS_H_

#include <memory>
#include <string>
#include <string_view>

#include "tensorferry/base/clock.h"
#include "tensorferry/base/log.h"
#include "tensorferry/base/log_limit.h"
#include "tensorferry/metrics/metrics.h"

namespace tensorferry {

struct FallbacksOptions {
  Metric metric = Metric::kFallbacks;  // with the labels from, to and reason
  std::shared_ptr<Metrics> metrics = {};
  LogSink log = {};
  LogLimitOptions limit = {};
  const Clock* clock = nullptr;  // for tests; outlives this
};

// What a line says beside; empty: nothing.
struct FallbackDetails {
  std::string_view request = {};
  std::string_view worker = {};
  std::string_view cause = {};
};

class Fallbacks {
 public:
  explicit Fallbacks(FallbacksOptions options);
  void Note(LabelValue from, LabelValue to, LabelValue reason, const FallbackDetails& details);

 private:
  const FallbacksOptions options_;
  const RealClock real_clock_;
  const Clock& clock_;
  LogLimit limit_;
};

}  // namespace tensorferry

#endif  // TENSORFERRY_METRICS_FALLBACKS_H_
