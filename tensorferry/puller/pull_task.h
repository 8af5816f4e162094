// One pull from the handle to the result: which ways are tried, in which order, with which memory.
// A state machine in the manner of engine::PullOp, over ops of several engines.
//
//   PullTask task(&context, handle, options, /*into=*/std::nullopt);
//   while (task.Step() != PullTask::Progress::kDone) { spin or poll, see task_set.h }
//   absl::StatusOr<View> view = task.TakeResult();
//
// Thread-safety: one thread at a time.
#ifndef TENSORFERRY_PULLER_PULL_TASK_H_
#define TENSORFERRY_PULLER_PULL_TASK_H_

#include <poll.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tensorferry/base/clock.h"
#include "tensorferry/base/spin.h"
#include "tensorferry/engine/pull_engine.h"
#include "tensorferry/metrics/fallbacks.h"
#include "tensorferry/puller/landing_pool.h"
#include "tensorferry/puller/puller.h"
#include "tensorferry/wire/descriptor.h"

namespace tensorferry {

// Views that are lent out. They may outlive their puller.
struct Loans {
  std::atomic<uint64_t> views = 0;
  std::atomic<uint64_t> bytes = 0;
};

// What all pulls of a puller share.
struct PullContext {
  std::vector<std::shared_ptr<engine::PullEngine>> engines;  // in order of preference
  std::shared_ptr<LandingPool> landing;
  Cancellation shutdown = Cancellation::Create();
  RealClock clock;
  std::shared_ptr<Metrics> metrics;
  std::unique_ptr<Fallbacks> fallbacks;
  std::shared_ptr<Loans> loans = std::make_shared<Loans>();
  Spin spin;
};

class PullTask {
 public:
  using Progress = engine::PullOp::Progress;

  // `context` outlives the task. With `into`, the bytes go there and the view borrows it.
  PullTask(PullContext* context, const Handle& handle, const PullOptions& options,
           std::optional<std::span<std::byte>> into);
  PullTask(const PullTask&) = delete;
  PullTask& operator=(const PullTask&) = delete;

  Progress Step();
  void AddWaits(std::vector<pollfd>* waits, Instant* wake) const;
  bool done() const { return result_.has_value(); }
  absl::StatusOr<View> TakeResult();

 private:
  absl::Status Prepare(const Handle& handle, const PullOptions& options);
  bool Interrupted();
  // Takes memory if need be and starts the op of the engine in turn.
  Progress Begin();
  Progress Land();
  Progress Fail(const absl::Status& status);
  Progress Finish(absl::StatusOr<View> result);
  void CountResult(const absl::Status& status) const;
  Instant AttemptDeadline() const;

  PullContext* const context_;
  const Cancellation cancel_;
  const std::function<bool()> interrupted_;
  Instant ask_at_ = kNever;  // whether it was
  const std::string request_;
  const Instant began_;
  const Duration timeout_;
  const bool waits_apart_;  // for landing memory
  Instant deadline_;
  const Instant landing_deadline_;
  const uint64_t nbytes_;
  const std::optional<std::span<std::byte>> into_;
  wire::Descriptor descriptor_;

  std::vector<engine::PullEngine*> candidates_;
  size_t candidate_ = 0;
  std::string failures_;  // of candidates before
  bool copy_ = false;     // the engine in turn cannot lend a view: it must copy
  bool decoded_ = false;  // descriptor_ says something
  bool asked_ = false;    // an engine was: it tells the gateway by itself
  std::unique_ptr<LandingPool::Ticket> ticket_;
  std::shared_ptr<LandingBlock> landed_in_;
  std::unique_ptr<engine::PullOp> op_;
  std::optional<absl::StatusOr<View>> result_;
};

}  // namespace tensorferry

#endif  // TENSORFERRY_PULLER_PULL_TASK_H_
