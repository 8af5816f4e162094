// Looking for an event for a while before sleeping, which is quicker where the other end runs on
// another processor, and in its way where it needs this one.
//
//   Spin spin;                                           // one for each thread or each owner
//   for (const Instant began = clock.Now(); spin.Again(began);) {
//     if (Look()) return;
//   }
//   Sleep();
//
// Each time around it yields: the kernel likes to wake the other end on this very processor. A
// yield that took long has given the processor to a program that is busy with other things. Then
// those who sleep are served sooner than those who yield, so that for some time nobody spins here.
// Thread-safety: from any thread.
#ifndef TENSORFERRY_BASE_SPIN_H_
#define TENSORFERRY_BASE_SPIN_H_

#include <sched.h>

#include <atomic>

#include "tensorferry/base/clock.h"

namespace tensorferry {

class Spin {
 public:
  // Longer than a wake-up between two processes on one machine takes, short enough to cost nothing
  // when idle.
  static constexpr Duration kLongest = std::chrono::microseconds(100);
  // The other end is done sooner; a time slice of the kernel's is longer.
  static constexpr Duration kTakenAway = std::chrono::microseconds(500);
  static constexpr Duration kPause = std::chrono::milliseconds(20);

  // True when it is worth looking again, false when it is time to sleep.
  bool Again(Instant began) {
    return Again(
        began, [] { ::sched_yield(); }, RealClock());
  }

  // For tests: with another way to yield, by another clock.
  template <typename Yield>
  bool Again(Instant began, const Yield& yield, const Clock& clock) {
    const Instant now = clock.Now();
    if (now - began >= kLongest || now < resume_.load(std::memory_order_relaxed)) return false;
    yield();
    const Instant after = clock.Now();
    if (after - now >= kTakenAway) resume_.store(after + kPause, std::memory_order_relaxed);
    return true;
  }

 private:
  std::atomic<Instant> resume_ = Instant::min();
};

}  // namespace tensorferry

#endif  // TENSORFERRY_BASE_SPIN_H_
