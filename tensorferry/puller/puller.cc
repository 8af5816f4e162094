#include "tensorferry/puller/puller.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <thread>
#include <utility>

#include "tensorferry/base/error.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/file/file_pull_engine.h"
#include "tensorferry/engine/local/local_pull_engine.h"
#include "tensorferry/engine/tcp/tcp_pull_engine.h"
#include "tensorferry/puller/landing_pool.h"
#include "tensorferry/puller/pull_task.h"
#include "tensorferry/puller/task_set.h"

namespace tensorferry {
namespace {

// Pulls of one PullAll that are under way at a time: enough to keep two ends busy, few enough not
// to open a connection for each of a thousand, and for what is between the ends to stay in a cache:
// 16 took half as long again for tensors of 64 KiB.
constexpr size_t kWindow = 8;

// A thread that drives asynchronous pulls.
class AsyncLoop {
 public:
  using OnDone = std::function<void(absl::StatusOr<View>)>;

  static absl::StatusOr<std::unique_ptr<AsyncLoop>> Create(PullContext* context) {
    auto loop = std::unique_ptr<AsyncLoop>(new AsyncLoop(context));
    if (!loop->wake_) return SystemError(errno, "eventfd of the puller's thread");
    loop->thread_ = std::thread([l = loop.get()] { l->Run(); });
    return loop;
  }

  ~AsyncLoop() { Stop(); }

  // Everything that is under way must end by itself: the puller's shutdown switch is on.
  void Stop() {
    {
      const std::lock_guard<std::mutex> lock(mu_);
      stopping_ = true;
    }
    (void)::eventfd_write(wake_.get(), 1);
    const std::lock_guard<std::mutex> lock(join_mu_);
    if (thread_.joinable()) thread_.join();
  }

  void Submit(std::unique_ptr<PullTask> task, OnDone on_done) {
    {
      const std::lock_guard<std::mutex> lock(mu_);
      if (!stopping_) {
        incoming_.push_back({std::move(task), std::move(on_done)});
        (void)::eventfd_write(wake_.get(), 1);
        return;
      }
    }
    // No thread is left to do it, and with the switch on the first step is the last.
    while (task->Step() != PullTask::Progress::kDone) {
    }
    on_done(task->TakeResult());
  }

 private:
  struct Incoming {
    std::unique_ptr<PullTask> task;
    OnDone on_done;
  };

  explicit AsyncLoop(PullContext* context) : set_(&context->clock, &context->spin) {}

  void Run() {
    while (true) {
      eventfd_t count;
      (void)::eventfd_read(wake_.get(), &count);
      std::vector<Incoming> incoming;
      {
        const std::lock_guard<std::mutex> lock(mu_);
        incoming.swap(incoming_);
        if (stopping_ && incoming.empty() && set_.empty()) return;
      }
      for (Incoming& i : incoming) {
        set_.Add(i.task.release(), [on_done = std::move(i.on_done)](PullTask* task) {
          const std::unique_ptr<PullTask> owned(task);
          on_done(owned->TakeResult());
        });
      }
      set_.StepAndWait(wake_.get());
    }
  }

  UniqueFd wake_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  TaskSet set_;
  std::mutex mu_;
  std::vector<Incoming> incoming_;
  bool stopping_ = false;
  std::mutex join_mu_;  // who comes second waits for the one who joins
  std::thread thread_;
};

}  // namespace

class PullerCore {
 public:
  static absl::StatusOr<std::shared_ptr<PullerCore>> Create(PullerOptions options) {
    auto core = std::make_shared<PullerCore>();
    core->context.metrics = options.metrics;
    core->context.fallbacks = std::make_unique<Fallbacks>(FallbacksOptions{
        .metric = Metric::kPullFallbacks, .metrics = options.metrics, .log = options.log});
    const auto add = [&](std::unique_ptr<engine::PullEngine> e) {
      core->context.engines.push_back(options.wrap ? options.wrap(std::move(e)) : std::move(e));
    };
    if (options.local)
      add(engine::CreateLocalPullEngine(
          {.boot_id = std::nullopt, .log = options.log, .metrics = options.metrics}));
    if (options.file) {
      if (!options.file->log) options.file->log = options.log;
      add(engine::CreateFilePullEngine(*options.file));
    }
    if (options.tcp) {
      add(engine::CreateTcpPullEngine(
          {.allow = options.allow, .log = options.log, .metrics = options.metrics}));
    }
    for (auto& e : options.engines) {
      auto& engines = core->context.engines;
      const auto tcp = std::find_if(engines.begin(), engines.end(),
                                    [](const auto& made) { return made->transport() == "tcp"; });
      engines.insert(e->preferred() ? tcp : engines.end(), std::move(e));
    }
    absl::StatusOr<std::shared_ptr<LandingPool>> landing =
        LandingPool::Create({.bytes = options.landing_bytes,
                             .name = "tensorferry-landing",
                             .setting = "landing_bytes",
                             .prefault = options.prefault,
                             .log = options.log});
    if (!landing.ok()) return landing.status();
    core->context.landing = *std::move(landing);
    for (const auto& e : core->context.engines) {
      e->UseLanding(core->context.landing->memory(), core->context.landing);
    }
    for (uint32_t i = 0; i < std::max(options.async_threads, 1U); ++i) {
      absl::StatusOr<std::unique_ptr<AsyncLoop>> loop = AsyncLoop::Create(&core->context);
      if (!loop.ok()) return loop.status();
      core->loops.push_back(*std::move(loop));
    }
    core->watch = Metrics::WatchBy(options.metrics,
                                   [c = core.get()](Gauges* gauges) { c->ShowGauges(gauges); });
    return core;
  }

  PullerStats stats() const {
    return {.landing_bytes = context.landing->capacity(),
            .landing_used_bytes = context.landing->used_bytes(),
            .waiting_for_landing = context.landing->waiting(),
            .borrowed_views = context.loans->views,
            .borrowed_bytes = context.loans->bytes};
  }

  void ShowGauges(Gauges* gauges) const {
    const PullerStats s = stats();
    gauges->Add(Metric::kLandingBytes, {LandingState::kFree},
                s.landing_bytes - s.landing_used_bytes);
    gauges->Add(Metric::kLandingBytes, {LandingState::kUsed}, s.landing_used_bytes);
    gauges->Add(Metric::kWaitingPulls, {}, s.waiting_for_landing);
    gauges->Add(Metric::kBorrowedViews, {}, s.borrowed_views);
    gauges->Add(Metric::kBorrowedBytes, {}, s.borrowed_bytes);
  }

  void Submit(const Handle& handle, const PullOptions& options,
              std::optional<std::span<std::byte>> into, AsyncLoop::OnDone on_done) {
    auto task = std::make_unique<PullTask>(&context, handle, options, into);
    const size_t turn = next_loop.fetch_add(1, std::memory_order_relaxed) % loops.size();
    loops[turn]->Submit(std::move(task), std::move(on_done));
  }

  absl::StatusOr<View> Run(const Handle& handle, const PullOptions& options,
                           std::optional<std::span<std::byte>> into) {
    PullTask task(&context, handle, options, into);
    TaskSet set(&context.clock, &context.spin);
    set.Add(&task, [](PullTask*) {});
    while (!set.empty()) set.StepAndWait(-1);
    return task.TakeResult();
  }

  PullContext context;
  std::atomic<size_t> next_loop = 0;
  std::vector<std::unique_ptr<AsyncLoop>> loops;  // joined before the context goes
  Metrics::Watch watch;
};

absl::StatusOr<std::unique_ptr<Puller>> Puller::Create(PullerOptions options) {
  absl::StatusOr<std::shared_ptr<PullerCore>> core = PullerCore::Create(std::move(options));
  if (!core.ok()) return core.status();
  return std::unique_ptr<Puller>(new Puller(*std::move(core)));
}

Puller::Puller(std::shared_ptr<PullerCore> core) : core_(std::move(core)) {}

Puller::~Puller() { Close(); }

void Puller::Close() {
  core_->context.shutdown.Cancel();
  for (const auto& loop : core_->loops) loop->Stop();
}

absl::StatusOr<View> Puller::Pull(const Handle& handle, const PullOptions& options) {
  return core_->Run(handle, options, std::nullopt);
}

absl::StatusOr<PulledInto> Puller::PullInto(const Handle& handle, std::span<std::byte> into,
                                            const PullOptions& options) {
  absl::StatusOr<View> view = core_->Run(handle, options, into);
  if (!view.ok()) return view.status();
  return PulledInto{view->transport()};
}

std::vector<absl::StatusOr<View>> Puller::PullAll(std::span<const Handle> handles,
                                                  const PullOptions& options,
                                                  std::span<const std::optional<int64_t>> keys) {
  if (!keys.empty() && keys.size() != handles.size()) {
    const absl::Status refused = MakeError(
        Reason::kBadOption, StrCat(keys.size(), " keys for ", handles.size(), " handles"));
    return std::vector<absl::StatusOr<View>>(handles.size(), refused);
  }
  std::vector<std::unique_ptr<PullTask>> tasks;
  tasks.reserve(handles.size());
  PullOptions own = options;
  for (size_t i = 0; i < handles.size(); ++i) {
    if (!keys.empty()) own.key = keys[i];
    tasks.push_back(std::make_unique<PullTask>(&core_->context, handles[i], own, std::nullopt));
  }
  TaskSet set(&core_->context.clock, &core_->context.spin);
  size_t next = 0;
  while (next < tasks.size() || !set.empty()) {
    while (next < tasks.size() && set.size() < kWindow)
      set.Add(tasks[next++].get(), [](PullTask*) {});
    set.StepAndWait(-1);
  }
  std::vector<absl::StatusOr<View>> results;
  results.reserve(tasks.size());
  for (const auto& task : tasks) results.push_back(task->TakeResult());
  return results;
}

void Puller::PullAsync(const Handle& handle, const PullOptions& options, Callback done) {
  core_->Submit(handle, options, std::nullopt, std::move(done));
}

void Puller::PullIntoAsync(const Handle& handle, std::span<std::byte> into,
                           const PullOptions& options, IntoCallback done) {
  core_->Submit(handle, options, into, [done = std::move(done)](absl::StatusOr<View> view) {
    if (!view.ok()) return done(view.status());
    done(PulledInto{view->transport()});
  });
}

void Puller::Decline(const Handle& handle) {
  const absl::StatusOr<wire::Descriptor> descriptor = DecodeHandle(handle, std::nullopt);
  if (!descriptor.ok()) return;
  for (const auto& e : core_->context.engines) e->Decline(*descriptor);
}

std::vector<std::string> Puller::transports() const {
  std::vector<std::string> out;
  for (const auto& e : core_->context.engines) out.emplace_back(e->transport());
  return out;
}

PullerStats Puller::stats() const { return core_->stats(); }

}  // namespace tensorferry
