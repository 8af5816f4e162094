// A switch that ends waiting, from any thread.
//
//   Cancellation stop = Cancellation::Create();
//   auto view = puller->Pull(handle, {.timeout = 5s, .cancel = stop});   // elsewhere:
//   stop.Cancel();
//
// Copies share the switch; it cannot be switched back. A default-constructed one never fires and
// costs nothing.
// Thread-safety: all calls from any thread.
#ifndef TENSORFERRY_BASE_CANCEL_H_
#define TENSORFERRY_BASE_CANCEL_H_

#include <sys/eventfd.h>

#include <atomic>
#include <memory>

#include "tensorferry/base/fd.h"

namespace tensorferry {

class Cancellation {
 public:
  Cancellation() = default;
  static Cancellation Create() {
    Cancellation c;
    c.state_ = std::make_shared<State>();
    return c;
  }

  void Cancel() const {
    if (!state_ || state_->fired.exchange(true)) return;
    if (state_->event) (void)::eventfd_write(state_->event.get(), 1);
  }
  bool cancelled() const { return state_ && state_->fired.load(std::memory_order_acquire); }
  // Readable for ever once fired; -1 when this never fires. Poll it, do not read it.
  int fd() const { return state_ ? state_->event.get() : -1; }

 private:
  struct State {
    std::atomic<bool> fired = false;
    UniqueFd event{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  };
  std::shared_ptr<State> state_;
};

}  // namespace tensorferry

#endif  // TENSORFERRY_BASE_CANCEL_H_
