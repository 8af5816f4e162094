// poll() until an instant of our clock.
//
//   PollUntil(&waits, wake, clock.Now());
//
// Thread-safety: a pure function of its arguments.
#ifndef TENSORFERRY_BASE_POLL_H_
#define TENSORFERRY_BASE_POLL_H_

#include <poll.h>

#include <algorithm>
#include <vector>

#include "tensorferry/base/clock.h"

namespace tensorferry {

// Waits until a descriptor of `waits` is ready or `wake` has come; kNever waits for ever. Returns
// poll's result.
inline int PollUntil(std::vector<pollfd>* waits, Instant wake, Instant now) {
  timespec left{};
  if (wake != kNever) {
    const Duration d = std::max(wake - now, Duration::zero());
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(d);
    left.tv_sec = seconds.count();
    left.tv_nsec = (d - seconds).count();
  }
  return ::ppoll(waits->data(), waits->size(), wake == kNever ? nullptr : &left, nullptr);
}

}  // namespace tensorferry

#endif  // TENSORFERRY_BASE_POLL_H_
