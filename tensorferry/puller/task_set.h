// Drives pulls: the one place where somebody waits for them.
//
//   TaskSet set(&clock, &spin);
//   set.Add(&task, [](PullTask* done) { ... });
//   while (!set.empty()) set.StepAndWait(/*wake_fd=*/-1);
//
// Spins (base/spin.h) for a moment after something moved, because the answer of a gateway is often only
// microseconds away, and then sleeps in poll().
// Thread-safety: one thread.
#ifndef TENSORFERRY_PULLER_TASK_SET_H_
#define TENSORFERRY_PULLER_TASK_SET_H_

#include <poll.h>

#include <functional>
#include <vector>

#include "tensorferry/base/clock.h"
#include "tensorferry/base/spin.h"
#include "tensorferry/puller/pull_task.h"

namespace tensorferry {

class TaskSet {
 public:
  using OnDone = std::function<void(PullTask*)>;
  // `spin`: shared by all who wait in this process, so that each knows what the others found.
  TaskSet(const Clock* clock, Spin* spin) : clock_(clock), spin_(spin) {}

  // `task` lives until `on_done` was called with it.
  void Add(PullTask* task, OnDone on_done);
  bool empty() const { return tasks_.empty(); }
  size_t size() const { return tasks_.size(); }
  // Steps every task that may have something to do; when none has, waits until one does or
  // `wake_fd` (if any) is readable, which it leaves to the caller to drain.
  void StepAndWait(int wake_fd);

 private:
  struct Entry {
    PullTask* task;
    OnDone on_done;
    bool ready;
    // Its part of waits_, and when to step it in any case.
    size_t first_wait, end_wait;
    Instant wake;
  };

  bool StepReady();
  void CollectWaits(int wake_fd);
  void MarkReady(Instant now);

  const Clock* const clock_;
  Spin* const spin_;
  std::vector<Entry> tasks_;
  std::vector<pollfd> waits_;
  Instant wake_ = kNever;
};

}  // namespace tensorferry

#endif  // TENSORFERRY_PULLER_TASK_SET_H_
