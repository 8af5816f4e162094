// The gateway's face: stage a tensor once, in place, and let workers fetch it over every transport.
//
//   auto exporter = Exporter::Create({.arena_bytes = 2 << 30, .listen = "10.0.0.5:18515",
//                                     .local_socket = "/run/gateway/tensorferry.sock"});
//   Staged staged = (*exporter)->Stage(nbytes);            // never fails; 64-byte aligned
//   Preprocess(image, staged.bytes());                     // write in place
//   Lease lease = std::move(staged).Publish({.key = room});
//   absl::StatusOr<std::string> d = lease.Descriptor();    // send it in the message
//   ...                                    // lease goes out of scope when the RPC has ended
//
// Staging never fails: when the arena is full the bytes are on the heap, they can go inline, and
// lease.exported() says why they cannot be fetched (arena_full, duplicate_key, shut_down). A Lease
// owns its memory: bytes() is valid while it lives, whatever readers do. With `.readers = n` it can
// be detached and ends by itself, with its n-th reader or at its TTL.
// Thread-safety: Exporter from any thread. Staged and Lease: one thread at a time, movable between
// threads.
// Ownership: Staged and Lease may outlive the Exporter; their bytes stay readable here, but nobody
// can fetch them any more. Nothing here reads the environment or logs by itself.
#ifndef TENSORFERRY_EXPORTER_EXPORTER_H_
#define TENSORFERRY_EXPORTER_EXPORTER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/export.h"
#include "tensorferry/base/log.h"
#include "tensorferry/engine/export_engine.h"
#include "tensorferry/metrics/metrics.h"
#include "tensorferry/wire/descriptor.h"

namespace tensorferry {

struct LeaseEvent {
  enum class Kind { kReleased, kExpired, kCancelled };
  Kind kind;
  std::optional<int64_t> key = {};
  uint64_t nbytes = 0;
};

// An engine that is made when it starts, and made anew when that failed.
struct EngineMaker {
  std::string transport;   // its label
  bool one_sided = false;  // as ExportEngine's
  bool preferred = false;  // as ExportEngine's
  std::function<absl::StatusOr<std::unique_ptr<engine::ExportEngine>>()> make;
};

struct ExporterOptions {
  uint64_t arena_bytes = uint64_t{1} << 30;
  bool prefault = true;
  Duration lease_ttl = std::chrono::seconds(210);

  // engine/tcp: "IP:PORT" to listen on, port 0 picks one. Empty: no tcp. A wildcard is refused: it
  // cannot be put into a descriptor, unless `advertise` names what can.
  std::string listen = {};
  // What descriptors carry instead of `listen`, best first.
  std::vector<std::string> advertise = {};
  // engine/local: path of the unix socket. Empty: no local.
  std::string local_socket = {};
  // Share of the arena, in percent, that one worker may hold as views.
  uint32_t max_claim_percent = 25;

  // Put an XXH3 of the payload into descriptors: costs one read of the bytes at Publish.
  bool checksum = false;

  // Called for leases that end by readers, TTL or Cancel (not for those that their owner dropped),
  // without locks held, from any thread of the exporter or of a caller.
  std::function<void(const LeaseEvent&)> on_event = {};
  LogSink log = {};
  // Counts leases and shows the arena; null: nobody counts. Engines that are made elsewhere have an
  // option of their own for it.
  std::shared_ptr<Metrics> metrics = {};

  // Further engines, after the built-in ones, or before tcp where preferred: engine/nixl, engine/ucx.
  std::vector<std::unique_ptr<engine::ExportEngine>> engines = {};
  // Of these, one that does not start is told of here, and the others serve without it. Null: Create
  // fails.
  std::function<void(std::string_view transport, const absl::Status& why)> on_left_out = {};
  // Further engines of which making one may fail for a while.
  std::vector<EngineMaker> make_engines = {};
  // Engines start on a thread of the exporter, and what fails is tried again until it runs: a port
  // that is taken delays its lane, and nothing else. Create then refuses only what no time mends.
  bool background = false;
  // For tests: a wrapper around each built-in engine, a clock.
  std::function<std::unique_ptr<engine::ExportEngine>(std::unique_ptr<engine::ExportEngine>)> wrap =
      {};
  const Clock* clock = nullptr;  // outlives the exporter
};

struct PublishOptions {
  // Name of the lease: no two live leases share one. None: the exporter picks a random one.
  std::optional<int64_t> key = {};
  // How many readers end the lease by having read it; 0: it ends when the Lease is destroyed.
  uint32_t readers = 0;
  // Instead of ExporterOptions::lease_ttl.
  std::optional<Duration> ttl = {};
};

struct EngineState {
  std::string transport;
  absl::Status status;  // OK: it runs; otherwise why not yet
};

struct ExporterStats {
  uint64_t arena_bytes = 0, free_bytes = 0, used_bytes = 0, resting_bytes = 0;
  uint64_t writing = 0, published = 0, ended = 0, resting = 0;  // leases
  uint64_t heap_fallbacks = 0;  // stages that did not fit the arena, since the start
};

class ExporterCore;

// A published tensor.
class TENSORFERRY_EXPORT Lease {
 public:
  Lease();
  Lease(Lease&&) noexcept;
  Lease& operator=(Lease&&) noexcept;
  ~Lease();  // ends it

  std::span<const std::byte> bytes() const;
  int64_t key() const;
  // OK when workers can fetch it; otherwise why not, with the reason.
  const absl::Status& exported() const;

  // Which ways a descriptor offers: shm (local) and remote (tcp, …).
  struct Ways {
    bool shm = true;
    bool remote = true;
  };
  // The encoded descriptor. exported()'s error, or kLaneOff when no engine serves the ways asked
  // for.
  absl::StatusOr<std::string> Descriptor(Ways ways) const;
  absl::StatusOr<std::string> Descriptor() const { return Descriptor(Ways{}); }

  // The descriptor that SMG's workers read (handle transport "nixl"). From now on its memory rests
  // after the lease, unless all `readers` have been heard. exported()'s error, kLaneOff without
  // engine/nixl, kLeaseEnded.
  absl::StatusOr<std::string> SmgDescriptor() const;

  // The request was answered, so that nobody reads any more: its memory need not rest.
  void ReadersAreDone();

  // Labels of the engines that serve it, best first: those that ran when it was published.
  std::vector<std::string> transports() const;

  // Lets readers, Cancel or the TTL end it. Not for leases with readers == 0 to wait for: only the
  // TTL would.
  void Detach() &&;

 private:
  friend class Staged;
  friend class ExporterCore;
  struct State;
  explicit Lease(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// A span to write a tensor into.
class TENSORFERRY_EXPORT Staged {
 public:
  Staged();
  Staged(Staged&&) noexcept;
  Staged& operator=(Staged&&) noexcept;
  ~Staged();  // gives the memory back if it was not published

  std::span<std::byte> bytes();
  bool in_arena() const;
  // Never fails: see Lease::exported().
  Lease Publish(const PublishOptions& options) &&;

 private:
  friend class ExporterCore;
  struct State;
  explicit Staged(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

class TENSORFERRY_EXPORT Exporter {
 public:
  // kAddressInUse, kBadAddress, kNoMemory, each naming value, limit and setting.
  static absl::StatusOr<std::unique_ptr<Exporter>> Create(ExporterOptions options);
  ~Exporter();  // Close()

  Staged Stage(uint64_t nbytes);
  // Stage, copy, publish.
  Lease Export(std::span<const std::byte> bytes, const PublishOptions& options);
  // Ends the live lease of this key; kLeaseEnded when there is none.
  absl::Status Cancel(int64_t key);
  // No new lease is exported from now on (reason shut_down); waits until none is readable.
  // kTimedOut says how many remain.
  absl::Status Drain(Duration timeout);
  // Ends every lease and stops the engines. Idempotent.
  void Close();

  // Waits until the arena's pages have been touched.
  void WaitPrefaulted() const;
  const wire::InstanceId& instance() const;
  // Labels of the running engines: "local", "tcp".
  std::vector<std::string> transports() const;
  // Every engine, running or not, but those that were left out. Without ExporterOptions::background
  // all run.
  std::vector<EngineState> engines() const;
  // Labels of those that do not run yet.
  std::vector<std::string> starting() const;
  // OK once all run; kTimedOut says which do not, and why.
  absl::Status WaitStarted(Duration timeout) const;
  // The address that tcp readers dial ("10.0.0.5:18515"), empty without tcp.
  std::string listen_address() const;
  ExporterStats stats() const;
  // How often the agent that SMG's workers READ from has been started; 0 while there is none. Stock
  // workers never read from a second one.
  uint64_t smg_epoch() const;

 private:
  explicit Exporter(std::shared_ptr<ExporterCore> core);
  std::shared_ptr<ExporterCore> core_;
};

}  // namespace tensorferry

#endif  // TENSORFERRY_EXPORTER_EXPORTER_H_
