#include "tensorferry/engine/ucx/module/ucx_loop.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "tensorferry/base/error.h"
#include "tensorferry/base/poll.h"

namespace tensorferry::engine {

void UcxTakeDown::Close(ucp_ep_h endpoint) {
  constexpr Duration kAtLeast = std::chrono::milliseconds(100);
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* const closing = ucp_ep_close_nbx(endpoint, &param);
  if (UCS_PTR_IS_PTR(closing)) closing_.push_back(closing);
  until_ = RealClock().Now() + kAtLeast;
}

void UcxTakeDown::Reap() {
  std::erase_if(closing_, [](void* request) {
    if (ucp_request_check_status(request) == UCS_INPROGRESS) return false;
    ucp_request_free(request);
    return true;
  });
}

Instant UcxTakeDown::Wake(Instant now, bool others, Instant next) const {
  const bool going = others || !closing_.empty() || now < until_;
  return going ? std::min(next, now + kLook) : next;
}

absl::Status UcxLoop::Start(Handler* handler) {
  wake_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_) return SystemError(errno, "engine/ucx: eventfd (see ulimit -n)");
  try {
    thread_ = std::thread([this, handler] { Run(handler); });
  } catch (const std::system_error& e) {
    return SystemError(e.code().value(), "engine/ucx: cannot start a thread (see ulimit -u)");
  }
  return absl::OkStatus();
}

void UcxLoop::Stop() {
  if (!thread_.joinable()) return;
  stop_.store(true);
  (void)::eventfd_write(wake_.get(), 1);
  thread_.join();
}

void UcxLoop::Post(std::function<void()> command) {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    commands_.push_back(std::move(command));
  }
  posted_.store(true);
  if (sleeping_.load()) (void)::eventfd_write(wake_.get(), 1);
}

bool UcxLoop::TakeCommands() {
  if (!posted_.load() || !posted_.exchange(false)) return false;
  std::vector<std::function<void()>> commands;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    commands.swap(commands_);
  }
  for (const auto& command : commands) command();
  return !commands.empty();
}

void UcxLoop::Run(Handler* handler) {
  const UcxLogScope log(&log_);
  Instant active = {};
  while (!stop_.load()) {
    bool moved = TakeCommands();
    moved = ucp_worker_progress(worker()) != 0 || moved;
    const Instant now = RealClock().Now();
    const Instant wake = handler->Tick(now);
    if (moved) active = now;
    if (moved || wake <= now || spin_.Again(active)) continue;
    Sleep(wake);
  }
  (void)TakeCommands();
  handler->Finish();
}

void UcxLoop::Sleep(Instant wake) {
  sleeping_.store(true);
  // Armed, the worker's descriptor tells of what comes; what came before is told here.
  if (!posted_.load() && !stop_.load() && ucp_worker_arm(worker()) == UCS_OK) {
    std::vector<pollfd> waits = {{.fd = context_->event_fd(), .events = POLLIN, .revents = 0},
                                 {.fd = wake_.get(), .events = POLLIN, .revents = 0}};
    (void)PollUntil(&waits, wake, RealClock().Now());
  }
  sleeping_.store(false);
  eventfd_t count;
  (void)::eventfd_read(wake_.get(), &count);
}

bool UcxLoop::ProgressUntil(const std::function<bool()>& done, Duration limit) {
  const Instant end = RealClock().Now() + limit;
  while (!done()) {
    const Instant now = RealClock().Now();
    if (now >= end) return false;
    if (ucp_worker_progress(worker()) != 0) continue;
    if (ucp_worker_arm(worker()) != UCS_OK) continue;
    std::vector<pollfd> waits = {{.fd = context_->event_fd(), .events = POLLIN, .revents = 0}};
    (void)PollUntil(&waits, std::min(end, now + UcxTakeDown::kLook), now);
  }
  return true;
}

}  // namespace tensorferry::engine
