// UCX's context and worker of one end, and what it was told: settings that are ours to check, since
// UCX takes any name and any value of another layer without a word.
//
//   auto context = UcxContext::Create(options, /*v6=*/false, /*listen=*/nullptr);
//   ucp_ep_create((*context)->worker(), ...);
//
// Thread-safety: one thread at a time (UCS_THREAD_MODE_SINGLE).
#ifndef TENSORFERRY_ENGINE_UCX_MODULE_UCX_CONTEXT_H_
#define TENSORFERRY_ENGINE_UCX_MODULE_UCX_CONTEXT_H_

#include <ucp/api/ucp.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/net.h"
#include "tensorferry/engine/ucx/ucx_options.h"

namespace tensorferry::engine {

// Active messages, both with a message of wire/tcp_messages.h as their header.
inline constexpr unsigned kUcxRequestId = 1;
inline constexpr unsigned kUcxAnswerId = 2;

// `what`, and UCX's words for `status`.
absl::Status UcxError(Reason reason, std::string_view what, ucs_status_t status);

// Calls `callback` with `argument` for each active message of this id, once it is whole. kLaneOff.
absl::Status ReceiveMessages(ucp_worker_h worker, unsigned id, ucp_am_recv_callback_t callback,
                             void* argument);

// kBadOption for what UCX would misunderstand.
absl::Status CheckUcxOptions(const UcxOptions& options);
// Whether tcp is among the transports that UCX is told.
bool UsesTcp(const UcxOptions& options);
// Whether UCX has no READ of the card's for some of its transports.
bool EmulatesGet(const UcxOptions& options);

// While it lives, what UCX has to say on this thread goes to the sink and not to standard output.
class UcxLogScope {
 public:
  explicit UcxLogScope(const LogSink* sink);
  ~UcxLogScope();
  UcxLogScope(const UcxLogScope&) = delete;
  UcxLogScope& operator=(const UcxLogScope&) = delete;

 private:
  const LogSink* const before_;
};

class UcxContext {
 public:
  // `listen`: the address that will be listened on, or null. kBadOption, kLaneOff.
  static absl::StatusOr<std::unique_ptr<UcxContext>> Create(const UcxOptions& options, bool v6,
                                                            const SocketAddress* listen);
  ~UcxContext();
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;

  ucp_context_h context() const { return context_; }
  ucp_worker_h worker() const { return worker_; }
  // Readable when there may be something to do, once it was armed.
  int event_fd() const { return event_fd_; }

 private:
  explicit UcxContext(LogSink log) : log_(std::move(log)) {}
  static absl::StatusOr<std::unique_ptr<UcxContext>> Make(const UcxOptions& options, bool v6,
                                                          const SocketAddress* listen,
                                                          bool prefixed);
  const LogSink log_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;  // the worker's
};

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_UCX_MODULE_UCX_CONTEXT_H_
