// The one thread that owns a UCX worker: others post what it shall do. It looks for more for a short
// while after something moved and then sleeps until UCX, a post or a deadline wakes it.
//
//   UcxLoop loop(std::move(context), log);
//   loop.Start(&handler);
//   loop.Post([this] { ... });       // on the loop's thread, in order
//   loop.Stop();                     // handler.Finish() is the last on it
//
// Thread-safety: Post from any thread; the rest as it says.
#ifndef TENSORFERRY_ENGINE_UCX_MODULE_UCX_LOOP_H_
#define TENSORFERRY_ENGINE_UCX_MODULE_UCX_LOOP_H_

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/base/log.h"
#include "tensorferry/base/spin.h"
#include "tensorferry/engine/ucx/module/ucx_context.h"

namespace tensorferry::engine {

// Endpoints that are closed by force. UCX takes one down bit by bit, as it is driven, and wakes nobody
// for that. Thread-safety: the loop's thread.
class UcxTakeDown {
 public:
  // How often to look while one is going.
  static constexpr Duration kLook = std::chrono::milliseconds(1);

  void Close(ucp_ep_h endpoint);
  // Lets go of those that are closed by now.
  void Reap();
  bool empty() const { return closing_.empty(); }
  // When to look again: soon while one is going, or `others`, else at `next`.
  Instant Wake(Instant now, bool others, Instant next) const;

 private:
  std::vector<void*> closing_;
  Instant until_ = Instant::min();  // at least
};

class UcxLoop {
 public:
  // On the loop's thread.
  class Handler {
   public:
    virtual ~Handler() = default;
    // After everything that moved; and when the moment comes that it returns.
    virtual Instant Tick(Instant now) = 0;
    // The last chance to use UCX.
    virtual void Finish() = 0;
  };

  UcxLoop(std::unique_ptr<UcxContext> context, const LogSink& log)
      : log_(log), context_(std::move(context)) {}
  ~UcxLoop() { Stop(); }
  UcxLoop(const UcxLoop&) = delete;
  UcxLoop& operator=(const UcxLoop&) = delete;

  absl::Status Start(Handler* handler);
  void Stop();
  void Post(std::function<void()> command);

  ucp_context_h context() const { return context_->context(); }
  ucp_worker_h worker() const { return context_->worker(); }
  // On the loop's thread: until `done`, but not for longer than `limit`. What it returned.
  bool ProgressUntil(const std::function<bool()>& done, Duration limit);

 private:
  void Run(Handler* handler);
  bool TakeCommands();
  void Sleep(Instant wake);

  const LogSink log_;
  const std::unique_ptr<UcxContext> context_;
  Spin spin_;
  UniqueFd wake_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> sleeping_ = false;
  std::atomic<bool> posted_ = false;
  std::mutex mu_;
  std::vector<std::function<void()>> commands_;
  std::thread thread_;
};

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_UCX_MODULE_UCX_LOOP_H_
