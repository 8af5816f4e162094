// Every metric there is: what is counted, served and documented is made from this one table.
//
//   const MetricSpec& spec = SpecOf(Metric::kFallbacks);
//   spec.name;                                      // "tensorferry_fallbacks_total"
//   LabelValue v = Lane::kShm;                      // a value is written as what it is
//   LabelValue t = LabelValue::Transport("tcp");
//
// A label's value is one of a closed set, known when this was compiled: nothing that a peer sends
// can become one. So every series has its place in an array (see metrics.h), and counting it needs
// no look-up. docs/metrics.md shows the table; the names are a contract: add, never rename. Those
// that begin with smg_mm_ are SMG's, with its labels and its meaning.
// Thread-safety: pure functions and values.
#ifndef TENSORFERRY_METRICS_METRIC_TABLE_H_
#define TENSORFERRY_METRICS_METRIC_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tensorferry/base/export.h"
#include "tensorferry/policy/decide.h"
#include "tensorferry/policy/engine.h"
#include "tensorferry/policy/lane.h"

namespace tensorferry {

// Sets of values that are nobody else's.
enum class ProcessEnd : uint8_t { kGateway, kWorker };
enum class ArenaState : uint8_t { kFree, kUsed, kResting };
enum class LandingState : uint8_t { kFree, kUsed };
enum class LeaseState : uint8_t { kWriting, kPublished, kEnded, kResting };
enum class LeaseEndCause : uint8_t { kReleased, kDropped, kCancelled, kExpired };
// `kLate`: of a lease that has ended, or never was. `kBad`: no key at all.
enum class NotificationKind : uint8_t { kKnown, kLate, kBad };

enum class ValueSet : uint8_t {
  kRuntimes,
  kLanes,
  kTransports,  // of kAllTransports; "other" for an engine of the user's own; "none"
  kLaneReasons,
  kResults,  // "ok", the name of a Reason, or the code of a status made elsewhere
  kEnds,
  kArenaStates,
  kLandingStates,
  kLeaseStates,
  kLeaseEndCauses,
  kNotificationKinds,
};

// X(enumerator, name, values)
#define TENSORFERRY_LABELS(X)                                                  \
  X(kRuntime, "runtime", kRuntimes)                                            \
  X(kPath, "path", kLanes)                                                     \
  X(kLane, "lane", kLanes)                                                     \
  X(kFrom, "from", kLanes)                                                     \
  X(kTo, "to", kLanes)                                                         \
  X(kLaneReason, "reason", kLaneReasons)                                       \
  X(kFromTransport, "from", kTransports)                                       \
  X(kToTransport, "to", kTransports)                                           \
  X(kTransport, "transport", kTransports)                                      \
  /* Two labels of one value: a transport, and the lane that it belongs to. */ \
  X(kLaneTransport, "transport", kTransports)                                  \
  X(kReason, "reason", kResults)                                               \
  X(kResult, "result", kResults)                                               \
  X(kEnd, "end", kEnds)                                                        \
  X(kArenaState, "state", kArenaStates)                                        \
  X(kLandingState, "state", kLandingStates)                                    \
  X(kLeaseState, "state", kLeaseStates)                                        \
  X(kCause, "cause", kLeaseEndCauses)                                          \
  X(kKind, "kind", kNotificationKinds)

enum class Label : uint8_t {
#define TENSORFERRY_X(id, name, values) id,
  TENSORFERRY_LABELS(TENSORFERRY_X)
#undef TENSORFERRY_X
};

enum class MetricKind : uint8_t { kCounter, kGauge, kHistogram };
// Which end counts it.
enum class MetricEnd : uint8_t { kGateway, kWorker, kBoth };

// X(enumerator, name, kind, end, (labels), help)
#define TENSORFERRY_METRICS(X)                                                                     \
  X(kMessageTensors, "smg_mm_tensors_total", kCounter, kGateway, (kRuntime, kPath),                \
    "Tensors put into requests, as bytes or as a handle, by the lane that was decided on")         \
  X(kMessageBytes, "smg_mm_tensor_bytes_total", kCounter, kGateway, (kRuntime, kPath),             \
    "Bytes of the tensors put into requests")                                                      \
  X(kShmWriteFailures, "smg_mm_shm_write_failures_total", kCounter, kGateway, (kRuntime),          \
    "Files under /dev/shm that could not be written")                                              \
  X(kRefusedTensors, "tensorferry_refused_tensors_total", kCounter, kGateway, (kRuntime, kReason), \
    "Tensors that no lane could take")                                                             \
  X(kLaneRejections, "tensorferry_lane_rejections_total", kCounter, kGateway,                      \
    (kLane, kLaneReason), "Lanes that a tensor did not take, each with what spoke against it")     \
  X(kFallbacks, "tensorferry_fallbacks_total", kCounter, kGateway, (kFrom, kTo, kLaneReason),      \
    "Tensors that had to take another lane than the one that they should have taken")              \
  X(kSentTensors, "tensorferry_sent_tensors_total", kCounter, kGateway,                            \
    (kRuntime, kLaneTransport, kResult), "Tensors whose request has ended, and how it ended")      \
  X(kSentBytes, "tensorferry_sent_bytes_total", kCounter, kGateway,                                \
    (kRuntime, kLaneTransport, kResult), "Bytes of the tensors whose request has ended")           \
  X(kSendDuration, "tensorferry_send_duration_seconds", kHistogram, kGateway, (kLaneTransport),    \
    "From putting a tensor into its request to the request's good end")                            \
  X(kArenaBytes, "tensorferry_arena_bytes", kGauge, kGateway, (kArenaState),                       \
    "The arena, by what its memory is doing; resting: nobody may use it yet, see docs/nixl.md")    \
  X(kLeases, "tensorferry_leases", kGauge, kGateway, (kLeaseState),                                \
    "Tensors in the arena, by where they are in their life")                                       \
  X(kLeaseEnds, "tensorferry_lease_ends_total", kCounter, kGateway, (kCause),                      \
    "Leases that have ended: read by all, dropped by their owner, cancelled, or expired")          \
  X(kLeaseDuration, "tensorferry_lease_duration_seconds", kHistogram, kGateway, (),                \
    "From staging a tensor to the end of its lease")                                               \
  X(kHeapFallbacks, "tensorferry_heap_fallbacks_total", kCounter, kGateway, (),                    \
    "Tensors staged on the heap since the arena had no room: workers cannot fetch them there")     \
  X(kLeaseReads, "tensorferry_lease_reads_total", kCounter, kGateway, (kResult),                   \
    "Reads that workers asked this gateway for (over tcp), by its answer; a big tensor is two")    \
  X(kNotifications, "tensorferry_nixl_notifications_total", kCounter, kGateway, (kKind),           \
    "What workers said of READs; late: of no lease that can still be read; bad: no key")           \
  X(kAgentRestarts, "tensorferry_nixl_agent_restarts_total", kCounter, kGateway, (),               \
    "How often the agent that workers READ from had to be started anew")                           \
  X(kHandshakes, "tensorferry_handshakes_total", kCounter, kBoth, (kEnd, kTransport, kResult),     \
    "Connections made between a gateway and a worker, as this end saw them")                       \
  X(kReceivedTensors, "tensorferry_received_tensors_total", kCounter, kWorker,                     \
    (kLaneTransport, kResult), "Tensors taken out of requests, and how that ended")                \
  X(kReceivedBytes, "tensorferry_received_bytes_total", kCounter, kWorker, (kLaneTransport),       \
    "Bytes of the tensors that arrived")                                                           \
  X(kReceiveDuration, "tensorferry_receive_duration_seconds", kHistogram, kWorker,                 \
    (kLaneTransport), "From asking for a tensor to its bytes, waiting for memory included")        \
  X(kPullFallbacks, "tensorferry_pull_fallbacks_total", kCounter, kWorker,                         \
    (kFromTransport, kToTransport, kReason),                                                       \
    "Pulls that went on over another transport, after the first one failed")                       \
  X(kReconnects, "tensorferry_reconnects_total", kCounter, kWorker, (kTransport),                  \
    "Connections that turned out dead and were replaced within a pull")                            \
  X(kLandingBytes, "tensorferry_landing_bytes", kGauge, kWorker, (kLandingState),                  \
    "The memory for tensors that arrive over a network")                                           \
  X(kWaitingPulls, "tensorferry_waiting_pulls", kGauge, kWorker, (),                               \
    "Pulls that wait for landing memory")                                                          \
  X(kBorrowedViews, "tensorferry_borrowed_views", kGauge, kWorker, (),                             \
    "Claims on gateways' arenas: tensors that are read in place")                                  \
  X(kBorrowedBytes, "tensorferry_borrowed_bytes", kGauge, kWorker, (),                             \
    "Bytes of gateways' arenas that are read in place")                                            \
  X(kQuarantinedReads, "tensorferry_quarantined_reads", kGauge, kWorker, (),                       \
    "READs that were given up and are not over: their landing memory stays taken")                 \
  X(kQuarantinedBytes, "tensorferry_quarantined_bytes", kGauge, kWorker, (),                       \
    "Landing memory that such READs keep")

enum class Metric : uint8_t {
#define TENSORFERRY_X(id, name, kind, end, labels, help) id,
  TENSORFERRY_METRICS(TENSORFERRY_X)
#undef TENSORFERRY_X
};

#define TENSORFERRY_X(id, name, kind, end, labels, help) +1
inline constexpr size_t kMetricCount = 0 TENSORFERRY_METRICS(TENSORFERRY_X);
#undef TENSORFERRY_X

struct MetricSpec {
  Metric id;
  std::string_view name;
  MetricKind kind;
  MetricEnd end;
  std::span<const Label> labels;
  std::string_view help;
};

// Of histograms, in seconds; beyond the last there is one more bucket.
inline constexpr std::array kBucketSeconds = {1e-5, 5e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2,
                                              0.1,  0.5,  1.0,  5.0,  10.0, 30.0, 60.0, 300.0};

// In the order of the enumeration.
TENSORFERRY_EXPORT std::span<const MetricSpec> MetricTable();
TENSORFERRY_EXPORT const MetricSpec& SpecOf(Metric metric);
// "counter", "gauge", "histogram".
TENSORFERRY_EXPORT std::string_view MetricKindName(MetricKind kind);

// One value of a label.
class TENSORFERRY_EXPORT LabelValue {
 public:
  // NOLINTBEGIN(google-explicit-constructor): a value is written as what it is.
  constexpr LabelValue(EngineProto v) : LabelValue(ValueSet::kRuntimes, v) {}
  constexpr LabelValue(Lane v) : LabelValue(ValueSet::kLanes, v) {}
  constexpr LabelValue(LaneReason v) : LabelValue(ValueSet::kLaneReasons, v) {}
  constexpr LabelValue(ProcessEnd v) : LabelValue(ValueSet::kEnds, v) {}
  constexpr LabelValue(ArenaState v) : LabelValue(ValueSet::kArenaStates, v) {}
  constexpr LabelValue(LandingState v) : LabelValue(ValueSet::kLandingStates, v) {}
  constexpr LabelValue(LeaseState v) : LabelValue(ValueSet::kLeaseStates, v) {}
  constexpr LabelValue(LeaseEndCause v) : LabelValue(ValueSet::kLeaseEndCauses, v) {}
  constexpr LabelValue(NotificationKind v) : LabelValue(ValueSet::kNotificationKinds, v) {}
  LabelValue(const absl::Status& result);
  LabelValue(Reason reason);
  // NOLINTEND(google-explicit-constructor)
  // "none" for an empty name.
  static LabelValue Transport(std::string_view name);

  ValueSet set() const { return set_; }
  size_t position() const { return position_; }

 private:
  template <class Value>
  constexpr LabelValue(ValueSet set, Value v) : set_(set), position_(static_cast<uint16_t>(v)) {}

  ValueSet set_;
  uint16_t position_;
};

std::string_view LabelName(Label label);
ValueSet ValuesOf(Label label);
size_t SizeOf(ValueSet set);
std::string_view NameOfValue(ValueSet set, size_t position);

// Name and value, as they are served.
using LabelPair = std::pair<std::string_view, std::string_view>;
void AppendLabels(Label label, size_t position, std::vector<LabelPair>* out);

}  // namespace tensorferry

#endif  // TENSORFERRY_METRICS_METRIC_TABLE_H_
