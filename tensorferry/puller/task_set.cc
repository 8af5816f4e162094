#include "tensorferry/puller/task_set.h"

#include <algorithm>
#include <utility>

#include "tensorferry/base/poll.h"

namespace tensorferry {

void TaskSet::Add(PullTask* task, OnDone on_done) {
  tasks_.push_back({.task = task,
                    .on_done = std::move(on_done),
                    .ready = true,
                    .first_wait = 0,
                    .end_wait = 0,
                    .wake = kNever});
}

void TaskSet::StepAndWait(int wake_fd) {
  if (StepReady()) return;
  const Instant began = clock_->Now();
  CollectWaits(wake_fd);
  if (tasks_.size() == 1) {
    // Asking the one op itself is one system call less than asking poll first.
    while (spin_->Again(began)) {
      tasks_[0].ready = true;
      if (StepReady()) return;
    }
  } else {
    while (wake_ > clock_->Now() && spin_->Again(began)) {
      const Instant now = clock_->Now();
      if (PollUntil(&waits_, now, now) > 0) return MarkReady(now);
    }
  }
  PollUntil(&waits_, wake_, clock_->Now());
  MarkReady(clock_->Now());
}

// True when anything moved, so that it is worth stepping again at once.
bool TaskSet::StepReady() {
  bool moved = false;
  for (size_t i = 0; i < tasks_.size();) {
    Entry& entry = tasks_[i];
    if (!entry.ready) {
      ++i;
      continue;
    }
    const PullTask::Progress progress = entry.task->Step();
    entry.ready = progress == PullTask::Progress::kMoved;
    moved = moved || progress != PullTask::Progress::kIdle;
    if (progress != PullTask::Progress::kDone) {
      ++i;
      continue;
    }
    PullTask* task = entry.task;
    const OnDone on_done = std::move(entry.on_done);
    tasks_.erase(tasks_.begin() + static_cast<ptrdiff_t>(i));
    on_done(task);
  }
  return moved;
}

void TaskSet::CollectWaits(int wake_fd) {
  waits_.clear();
  wake_ = kNever;
  if (wake_fd >= 0) waits_.push_back({wake_fd, POLLIN, 0});
  for (Entry& entry : tasks_) {
    entry.first_wait = waits_.size();
    entry.wake = kNever;
    entry.task->AddWaits(&waits_, &entry.wake);
    entry.end_wait = waits_.size();
    wake_ = std::min(wake_, entry.wake);
  }
}

void TaskSet::MarkReady(Instant now) {
  for (Entry& entry : tasks_) {
    entry.ready =
        entry.wake <= now || std::any_of(waits_.begin() + static_cast<ptrdiff_t>(entry.first_wait),
                                         waits_.begin() + static_cast<ptrdiff_t>(entry.end_wait),
                                         [](const pollfd& p) { return p.revents != 0; });
  }
}

}  // namespace tensorferry
