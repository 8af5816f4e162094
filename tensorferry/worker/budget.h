// How much of a request's time a worker may spend on fetching its tensors.
//
//   PullOptions options{.timeout = PullBudget(remaining)};
//
// Half: so that a gateway that is told of a failed pull has as long again to send the bytes in the
// message.
//
// Thread-safety: pure functions.
#ifndef TENSORFERRY_WORKER_BUDGET_H_
#define TENSORFERRY_WORKER_BUDGET_H_

#include <algorithm>
#include <chrono>
#include <optional>

#include "tensorferry/base/clock.h"

namespace tensorferry {

// `remaining`: until the RPC's deadline; none when it has no deadline. `limit`: never longer than
// this. Zero when the deadline has passed.
inline Duration PullBudget(std::optional<Duration> remaining,
                           Duration limit = std::chrono::seconds(60)) {
  const Duration half = remaining ? *remaining / 2 : Duration::max();
  return std::clamp(half, Duration::zero(), std::max(limit, Duration::zero()));
}

}  // namespace tensorferry

#endif  // TENSORFERRY_WORKER_BUDGET_H_
