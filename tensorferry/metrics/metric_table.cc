#include "tensorferry/metrics/metric_table.h"

#include <algorithm>
#include <optional>

namespace tensorferry {
namespace {

struct LabelEntry {
  std::string_view name;
  ValueSet values;
};

constexpr LabelEntry kLabels[] = {
#define TENSORFERRY_X(id, name, values) {name, ValueSet::values},
    TENSORFERRY_LABELS(TENSORFERRY_X)
#undef TENSORFERRY_X
};

constexpr Reason kReasons[] = {
#define TENSORFERRY_X(id, number, name, code, retryable, meaning) Reason::id,
    TENSORFERRY_REASONS(TENSORFERRY_X)
#undef TENSORFERRY_X
};

constexpr std::string_view kEndNames[] = {"gateway", "worker"};
constexpr std::string_view kArenaStateNames[] = {"free", "used", "resting"};
constexpr std::string_view kLandingStateNames[] = {"free", "used"};
constexpr std::string_view kLeaseStateNames[] = {"writing", "published", "ended", "resting"};
constexpr std::string_view kCauseNames[] = {"released", "dropped", "cancelled", "expired"};
constexpr std::string_view kNotificationNames[] = {"known", "late", "bad"};

#define TENSORFERRY_X(id, name, error, meaning) +1
constexpr size_t kLaneReasonCount = 0 TENSORFERRY_LANE_REASONS(TENSORFERRY_X);
#undef TENSORFERRY_X

// Behind kAllTransports.
constexpr size_t kOther = kAllTransports.size();
constexpr size_t kNone = kOther + 1;

// Behind "ok" and the reasons come the codes of statuses made elsewhere.
constexpr size_t kFirstCode = 1 + std::size(kReasons);
constexpr size_t kCodes = static_cast<size_t>(absl::StatusCode::kUnauthenticated) + 1;

size_t PositionOf(Reason reason) {
  return 1 + static_cast<size_t>(std::find(std::begin(kReasons), std::end(kReasons), reason) -
                                 std::begin(kReasons));
}

size_t PositionOf(const absl::Status& status) {
  if (status.ok()) return 0;
  // A code that is called as a reason is counted as that.
  if (const auto reason = ReasonFromName(ReasonNameOf(status))) return PositionOf(*reason);
  return kFirstCode + std::min(static_cast<size_t>(status.code()), kCodes - 1);
}

std::string_view ResultName(size_t position) {
  if (position == 0) return "ok";
  if (position < kFirstCode) return ReasonName(kReasons[position - 1]);
  return ReasonNameOf(absl::Status(static_cast<absl::StatusCode>(position - kFirstCode), ""));
}

std::string_view TransportName(size_t position) {
  if (position == kNone) return "none";
  return position == kOther ? "other" : kAllTransports[position];
}

// As Receiver has it: what is unknown came from elsewhere.
std::string_view LaneNameOfTransport(size_t position) {
  if (position == kNone) return "none";
  return LaneName(LaneOfTransport(TransportName(position)).value_or(Lane::kRemote));
}

using enum Label;

template <Label... labels>
struct Labels {
  static constexpr std::array<Label, sizeof...(labels)> kList = {labels...};
};

// Takes the parentheses from around a list.
#define TENSORFERRY_BARE(...) __VA_ARGS__
constexpr MetricSpec kTable[] = {
#define TENSORFERRY_X(id, name, kind, end, labels, help)                                       \
  {Metric::id, name, MetricKind::kind, MetricEnd::end, Labels<TENSORFERRY_BARE labels>::kList, \
   help},
    TENSORFERRY_METRICS(TENSORFERRY_X)
#undef TENSORFERRY_X
};
#undef TENSORFERRY_BARE

}  // namespace

std::span<const MetricSpec> MetricTable() { return kTable; }
const MetricSpec& SpecOf(Metric metric) { return kTable[static_cast<size_t>(metric)]; }

std::string_view MetricKindName(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter:
      return "counter";
    case MetricKind::kGauge:
      return "gauge";
    case MetricKind::kHistogram:
      return "histogram";
  }
  return "";
}

LabelValue::LabelValue(const absl::Status& result)
    : LabelValue(ValueSet::kResults, PositionOf(result)) {}
LabelValue::LabelValue(Reason reason) : LabelValue(ValueSet::kResults, PositionOf(reason)) {}

LabelValue LabelValue::Transport(std::string_view name) {
  if (name.empty()) return {ValueSet::kTransports, kNone};
  const auto* const at = std::find(kAllTransports.begin(), kAllTransports.end(), name);
  return {ValueSet::kTransports, static_cast<size_t>(at - kAllTransports.begin())};
}

std::string_view LabelName(Label label) { return kLabels[static_cast<size_t>(label)].name; }
ValueSet ValuesOf(Label label) { return kLabels[static_cast<size_t>(label)].values; }

size_t SizeOf(ValueSet set) {
  switch (set) {
    case ValueSet::kRuntimes:
      return kAllEngineProtos.size();
    case ValueSet::kLanes:
      return kAllLanes.size();
    case ValueSet::kTransports:
      return kNone + 1;
    case ValueSet::kLaneReasons:
      return kLaneReasonCount;
    case ValueSet::kResults:
      return kFirstCode + kCodes;
    case ValueSet::kEnds:
      return std::size(kEndNames);
    case ValueSet::kArenaStates:
      return std::size(kArenaStateNames);
    case ValueSet::kLandingStates:
      return std::size(kLandingStateNames);
    case ValueSet::kLeaseStates:
      return std::size(kLeaseStateNames);
    case ValueSet::kLeaseEndCauses:
      return std::size(kCauseNames);
    case ValueSet::kNotificationKinds:
      return std::size(kNotificationNames);
  }
  return 0;
}

std::string_view NameOfValue(ValueSet set, size_t position) {
  switch (set) {
    case ValueSet::kRuntimes:
      return EngineProtoName(kAllEngineProtos[position]);
    case ValueSet::kLanes:
      return LaneName(kAllLanes[position]);
    case ValueSet::kTransports:
      return TransportName(position);
    case ValueSet::kLaneReasons:
      return LaneReasonName(static_cast<LaneReason>(position));
    case ValueSet::kResults:
      return ResultName(position);
    case ValueSet::kEnds:
      return kEndNames[position];
    case ValueSet::kArenaStates:
      return kArenaStateNames[position];
    case ValueSet::kLandingStates:
      return kLandingStateNames[position];
    case ValueSet::kLeaseStates:
      return kLeaseStateNames[position];
    case ValueSet::kLeaseEndCauses:
      return kCauseNames[position];
    case ValueSet::kNotificationKinds:
      return kNotificationNames[position];
  }
  return "";
}

void AppendLabels(Label label, size_t position, std::vector<LabelPair>* out) {
  if (label == Label::kLaneTransport) out->emplace_back("lane", LaneNameOfTransport(position));
  out->emplace_back(LabelName(label), NameOfValue(ValuesOf(label), position));
}

}  // namespace tensorferry
