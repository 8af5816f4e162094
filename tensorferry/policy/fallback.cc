#include "tensorferry/policy/fallback.h"

#include <algorithm>

namespace tensorferry {
namespace {

enum class Kind {
  kRule,     // how it is meant to be
  kSetUp,    // what these two ends cannot do at all
  kTrouble,  // what they could do, but not with this tensor or not now
};

Kind KindOf(LaneReason reason) {
  switch (reason) {
    case LaneReason::kArenaFull:
    case LaneReason::kDuplicateKey:
    case LaneReason::kShutDown:
    case LaneReason::kStarting:
    case LaneReason::kResting:
    case LaneReason::kAgentRestarted:
    case LaneReason::kOverLanding:
    case LaneReason::kOverMaxInline:
    case LaneReason::kShmFailed:
    case LaneReason::kPullFailed:
      return Kind::kTrouble;
    case LaneReason::kLaneOff:
    case LaneReason::kNotAdvertised:
    case LaneReason::kNoCommonTransport:
    case LaneReason::kNoCommonVersion:
    case LaneReason::kOtherHost:
    case LaneReason::kUidDiffers:
      return Kind::kSetUp;
    case LaneReason::kPreferred:
    case LaneReason::kMode:
    case LaneReason::kEmpty:
    case LaneReason::kBelowMinimum:
    case LaneReason::kAssumed:
    case LaneReason::kEngine:
    case LaneReason::kModality:
    case LaneReason::kSideTensor:
    case LaneReason::kOutranked:
      return Kind::kRule;
  }
  return Kind::kRule;
}

std::optional<LaneReason> ReasonAgainst(const LaneDecision& decision, Lane lane) {
  for (const Rejection& r : decision.rejected) {
    if (r.lane == lane) return r.reason;
  }
  return std::nullopt;
}

// The lane that kAuto would take if nothing were amiss.
std::optional<Lane> LaneWithoutTrouble(const LaneQuery& query) {
  Capabilities worker = query.worker;
  worker.landing_bytes = std::max(worker.landing_bytes, query.tensor.nbytes);
  GatewayFacts gateway = query.gateway;
  gateway.transports.insert(gateway.transports.end(), gateway.starting.begin(),
                            gateway.starting.end());
  LaneQuery untroubled{query.policy, gateway, worker, query.tensor};
  untroubled.tensor.unexported.reset();
  untroubled.tensor.against_nixl.reset();
  untroubled.tensor.file_failed = false;
  const LaneDecision decision = DecideLanes(untroubled);
  if (decision.offers.empty()) return std::nullopt;
  return decision.offers.front().lane;
}

}  // namespace

std::optional<Fallback> FallbackOf(const LaneQuery& query, const LaneDecision& decision) {
  if (decision.offers.empty()) return std::nullopt;
  const Lane to = decision.offers.front().lane;
  const std::optional<Lane> named = NamedLane(query.policy.mode);
  std::optional<Lane> from = named;
  if (!named) {
    // Mostly there is no trouble, and nothing more to find out.
    if (std::none_of(decision.rejected.begin(), decision.rejected.end(),
                     [](const Rejection& r) { return KindOf(r.reason) == Kind::kTrouble; })) {
      return std::nullopt;
    }
    from = LaneWithoutTrouble(query);
  }
  if (!from || *from == to) return std::nullopt;
  const std::optional<LaneReason> reason = ReasonAgainst(decision, *from);
  if (!reason || KindOf(*reason) == Kind::kRule) return std::nullopt;
  return Fallback{*from, to, *reason};
}

}  // namespace tensorferry
