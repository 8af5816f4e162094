// The worker's face: fetch the bytes that a descriptor names, over the best way that both ends
// have.
//
//   auto puller = Puller::Create({.allow = *AllowList::Parse({"10.0.0.0/24"}),
//                                 .landing_bytes = 1 << 30});
//   absl::StatusOr<View> view = (*puller)->Pull(handle, {.timeout = 5s});   // borrowed or landed
//   Use(view->bytes());                                                     // released with `view`
//   auto done = (*puller)->PullInto(handle, buffer, {.timeout = 5s});       // into your own memory
//   auto all = (*puller)->PullAll(handles, {.timeout = 5s});                // posted together
//   (*puller)->PullAsync(handle, {.timeout = 5s}, [](absl::StatusOr<View> v) { ... });
//
// One timeout covers everything: connecting, waiting for landing space (first come, first served),
// transfer, and trying the next way when one fails. When a call has returned, no byte is written
// any more to memory that was given to it. Errors carry a Reason; IsRetryable() tells passing from
// final.
// Thread-safety: everything from any thread. Synchronous calls do their I/O on the calling thread;
// callbacks run on the puller's own threads and must not block.
// Ownership: a View keeps its memory (and the mapping behind it) until destroyed, also after the
// Puller is gone.
#ifndef TENSORFERRY_PULLER_PULLER_H_
#define TENSORFERRY_PULLER_PULLER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/base/cancel.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/export.h"
#include "tensorferry/base/log.h"
#include "tensorferry/base/net.h"
#include "tensorferry/engine/file/file_pull_engine.h"
#include "tensorferry/engine/pull_engine.h"
#include "tensorferry/metrics/metrics.h"
#include "tensorferry/puller/handle.h"

namespace tensorferry {

struct PullerOptions {
  // Gateways that may be dialled. Default: this host only.
  AllowList allow = AllowList::Loopback();
  // Memory for tensors that arrive over a network. 0: only PullInto and borrowed views work.
  uint64_t landing_bytes = uint64_t{1} << 30;
  bool prefault = true;
  bool local = true;  // map the gateway's arena when on its host
  bool tcp = true;
  // Read the files under /dev/shm that SMG's gateways write. None: off, the default, since whoever
  // may send to the worker can then make it read and remove the files of its own user's gateways.
  std::optional<engine::FilePullOptions> file = {};
  uint32_t async_threads = 2;
  // Also one line at kWarning for each pull that goes on over another transport, of many alike only
  // a few.
  LogSink log = {};
  // Counts pulls and shows landing memory; null: nobody counts. Engines that are made elsewhere
  // have an option of their own for it.
  std::shared_ptr<Metrics> metrics = {};

  // Further engines, after the built-in ones, or before tcp where preferred: engine/nixl, engine/ucx.
  std::vector<std::shared_ptr<engine::PullEngine>> engines = {};
  // For tests: a wrapper around each built-in engine.
  std::function<std::unique_ptr<engine::PullEngine>(std::unique_ptr<engine::PullEngine>)> wrap = {};
};

struct PullOptions {
  Duration timeout = std::chrono::seconds(5);
  // Wait for landing memory at most so long, and count `timeout` from when it was had. None: one
  // timeout covers both.
  std::optional<Duration> landing_timeout = {};
  Cancellation cancel = {};
  // The key that the bytes must have (EPD: the room). kKeyMismatch otherwise.
  std::optional<int64_t> key = {};
  // Asked now and then, on the thread that drives the pull: of a synchronous call, its caller's.
  // True ends it with kCancelled, and is said again when asked again. For callers to whom a signal
  // is only a word left for later, such as an interpreter's.
  std::function<bool()> interrupted = {};
  // The request's id, for the log.
  std::string request = {};
};

// Received bytes. 64-byte aligned.
class View {
 public:
  View() = default;
  View(std::span<const std::byte> bytes, std::string_view transport, bool borrowed,
       std::shared_ptr<const void> hold)
      : bytes_(bytes), transport_(transport), borrowed_(borrowed), hold_(std::move(hold)) {}
  std::span<const std::byte> bytes() const { return bytes_; }
  // What carried them: "local", "file", "tcp", …
  std::string_view transport() const { return transport_; }
  // Memory of the gateway's arena, read in place: never write to it, and do not keep it for long.
  bool borrowed() const { return borrowed_; }
  // Shares the ownership of the bytes.
  std::shared_ptr<const void> hold() const { return hold_; }

 private:
  std::span<const std::byte> bytes_;
  std::string_view transport_;
  bool borrowed_ = false;
  std::shared_ptr<const void> hold_;
};

struct PulledInto {
  std::string_view transport;
};

struct PullerStats {
  uint64_t landing_bytes = 0, landing_used_bytes = 0;
  uint64_t waiting_for_landing = 0;                 // pulls
  uint64_t borrowed_views = 0, borrowed_bytes = 0;  // of gateways' arenas
};

class PullerCore;

class TENSORFERRY_EXPORT Puller {
 public:
  static absl::StatusOr<std::unique_ptr<Puller>> Create(PullerOptions options);
  ~Puller();  // Close()

  // Ends what is under way, in this and every other thread, and all that comes later with
  // kShutDown; when it returns, every callback has been called. Not from a callback. Idempotent.
  void Close();

  absl::StatusOr<View> Pull(const Handle& handle, const PullOptions& options);
  // `into` must be exactly handle.nbytes long.
  absl::StatusOr<PulledInto> PullInto(const Handle& handle, std::span<std::byte> into,
                                      const PullOptions& options);
  // One result per handle, in order. One that fails does not disturb the others. `keys`: one per
  // handle, instead of options.key; empty: that one for all.
  std::vector<absl::StatusOr<View>> PullAll(std::span<const Handle> handles,
                                            const PullOptions& options,
                                            std::span<const std::optional<int64_t>> keys = {});

  using Callback = std::function<void(absl::StatusOr<View>)>;
  void PullAsync(const Handle& handle, const PullOptions& options, Callback done);
  using IntoCallback = std::function<void(absl::StatusOr<PulledInto>)>;
  // `into` belongs to the puller until `done` is called.
  void PullIntoAsync(const Handle& handle, std::span<std::byte> into, const PullOptions& options,
                     IntoCallback done);

  // This handle will not be pulled: lets a gateway that waits to hear of its readers know. A pull
  // that fails does so by itself. Never blocks, best effort.
  void Decline(const Handle& handle);

  // Labels of the enabled engines, in order of preference.
  std::vector<std::string> transports() const;
  PullerStats stats() const;

 private:
  explicit Puller(std::shared_ptr<PullerCore> core);
  std::shared_ptr<PullerCore> core_;
};

}  // namespace tensorferry

#endif  // TENSORFERRY_PULLER_PULLER_H_
