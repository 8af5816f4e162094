// The gateways that a worker reads from over NIXL: how to reach each, and a thread that keeps all
// of that from pulls.
//
//   NixlGateways gateways(library, agent, options);
//   NixlGateways::Connection c = gateways.Connect(address, /*stale=*/0, range);   // never blocks
//   if (c.peer) ...                       // READ from it; if that fails, Connect with stale = c.epoch
//   gateways.Release(address, {.key = key, .slot = slot});
//   gateways.Quarantine(std::move(read), owner, address, {.key = key, .slot = slot});
//
// Thread-safety: everything from any thread.
#ifndef TENSORFERRY_ENGINE_NIXL_NIXL_GATEWAYS_H_
#define TENSORFERRY_ENGINE_NIXL_NIXL_GATEWAYS_H_

#include <poll.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/base/net.h"
#include "tensorferry/engine/nixl/nixl_agent.h"
#include "tensorferry/engine/nixl/nixl_handshake.h"
#include "tensorferry/engine/nixl/nixl_pull_engine.h"

namespace tensorferry::engine {

class NixlGateways {
 public:
  // A way to a gateway: the agent to use, and the gateway as it knows it.
  struct Connection {
    std::shared_ptr<NixlAgent> agent;
    std::shared_ptr<NixlPeer> peer;  // null: not yet, or `failure` says why not
    uint64_t epoch = 0;              // of the handshake that made it; never 0
    absl::Status failure;
  };

  NixlGateways(std::shared_ptr<const NixlLibrary> library, std::shared_ptr<NixlAgent> agent,
               const NixlPullOptions& options);
  // Waits for what is in quarantine, as long as the options say.
  ~NixlGateways();
  NixlGateways(const NixlGateways&) = delete;
  NixlGateways& operator=(const NixlGateways&) = delete;

  // Before anything else: what READs may fill.
  absl::Status UseLanding(std::span<std::byte> memory, const std::shared_ptr<const void>& owner);

  // The present connection, if it is younger than `stale`; otherwise one is being made. `range` is
  // what will be read, for the exchange that is NIXL's own.
  struct Range {
    uint64_t address = 0;
    uint64_t length = 0;
  };
  Connection Connect(const SocketAddress& address, uint64_t stale, Range range);
  // A connection of no use is about to be replaced.
  void CountReconnect() const {
    Count(options_.metrics, Metric::kReconnects, {LabelValue::Transport("nixl")});
  }
  // A lease that is not going to be read.
  struct Unread {
    int64_t key = 0;
    uint64_t slot = 0;  // address of its frame
  };
  // Tells the gateway, when it can be reached, that the lease has had its reader. The notification
  // goes with a READ of eight bytes, whose end shows that it has arrived: one that belongs to no
  // READ is lost when this process ends soon after. Best effort.
  void Release(const SocketAddress& address, const Unread& unread);
  // Keeps a READ that is not over, and the `nbytes` that it writes to, until it is; then frees the
  // lease at its gateway.
  void Quarantine(std::unique_ptr<NixlRead> read, std::shared_ptr<const void> owner,
                  uint64_t nbytes, const SocketAddress& gateway, const Unread& unread);

 private:
  enum class State { kIdle, kConnecting, kReady, kFailed };
  struct Gateway {
    State state = State::kIdle;
    Connection connection;
    uint64_t epochs = 0;
    Instant retry_at = {};
    Duration backoff = {};
    Instant used = {};
    Range range;
    std::unique_ptr<NixlHandshake> handshake;  // the thread's
    Instant fetch_until = kNever;              // of NIXL's own exchange
    std::vector<Unread> unread;
  };
  struct Resting {
    std::unique_ptr<NixlRead> read;
    std::shared_ptr<const void> owner;
    uint64_t nbytes;
    SocketAddress gateway;
    Unread unread;
  };

  void Run();
  // One look at everything under way. Returns when to look again.
  Instant Step(std::vector<pollfd>* waits);
  void StepGateway(const SocketAddress& address, Gateway& gateway, Instant now);
  absl::StatusOr<std::shared_ptr<NixlPeer>> Load(const SocketAddress& address, uint64_t epoch,
                                                 const std::string& metadata);
  absl::Status BeginFetch(const SocketAddress& address, Gateway& gateway, Instant now);
  void Succeed(Gateway& gateway, std::shared_ptr<NixlAgent> agent, std::shared_ptr<NixlPeer> peer);
  void Fail(Gateway& gateway, absl::Status why, Instant now);
  std::set<std::shared_ptr<NixlAgent>> Agents() const;
  void Tell(const Connection& connection, const Unread& unread);
  Gateway& FindLocked(const SocketAddress& address, Instant now);
  void Wake();
  void CountHandshake(const absl::Status& result) const;
  void ShowGauges(Gauges* gauges) const;

  const std::shared_ptr<const NixlLibrary> library_;
  const std::shared_ptr<NixlAgent> agent_;
  const NixlPullOptions options_;
  std::span<std::byte> landing_;
  std::shared_ptr<const void> landing_owner_;
  // What the READs of Release fill.
  const std::shared_ptr<std::array<std::byte, 64>> scratch_ =
      std::make_shared<std::array<std::byte, 64>>();

  UniqueFd wake_;
  mutable std::mutex mu_;
  std::map<SocketAddress, Gateway> gateways_;
  std::vector<Resting> quarantine_;
  // The thread's.
  std::vector<std::unique_ptr<NixlRead>> releases_;
  Instant linger_until_ = {};  // for the last notification that belongs to no READ
  bool stopping_ = false;
  std::thread thread_;
  Metrics::Watch watch_;
};

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_NIXL_NIXL_GATEWAYS_H_
