// Whether a tensor had to take another lane than the one that it should have taken: what operators
// want to hear of.
//
//   const LaneDecision decision = DecideLanes(query);
//   if (const auto fallback = FallbackOf(query, decision)) ...    // from shm to inline: arena_full
//
// The lane that it should have taken is the named one, or under Mode::kAuto the best that these two
// ends can use for a tensor like this when nothing is amiss. So a worker on another host is no
// fallback under kAuto, and one when the operator named lane shm and allowed another; a tensor below
// the minimum, a side tensor or an engine without handles never is: that is the rule, not an
// accident.
//
// Thread-safety: a pure function.
#ifndef TENSORFERRY_POLICY_FALLBACK_H_
#define TENSORFERRY_POLICY_FALLBACK_H_

#include <optional>

#include "tensorferry/base/export.h"
#include "tensorferry/policy/decide.h"

namespace tensorferry {

struct Fallback {
  Lane from = Lane::kInline;
  Lane to = Lane::kInline;
  LaneReason reason = LaneReason::kPreferred;
  friend bool operator==(const Fallback&, const Fallback&) = default;
};

// `decision` is that of `query`. None also when no lane is left at all: that is an error.
TENSORFERRY_EXPORT std::optional<Fallback> FallbackOf(const LaneQuery& query,
                                                      const LaneDecision& decision);

}  // namespace tensorferry

#endif  // TENSORFERRY_POLICY_FALLBACK_H_
