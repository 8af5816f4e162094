// engine/nixl, worker side: fills landing memory by one-sided READs from an SMG gateway, stock or
// ours.
//
//   auto library = NixlLibrary::Open({});
//   if (!library.ok()) ...                                   // this lane is off, the others work
//   auto engine = CreateNixlPullEngine(*library, {.allow = *AllowList::Parse({"10.0.0.0/24"})});
//   if (engine.ok()) puller_options.engines.push_back(*std::move(engine));
//
// One agent serves any number of gateways, also of the same agent name: each one's metadata are
// fetched over a connection of our own and kept under a name of ours. State per gateway: handshakes
// are single-flight and run beside each other on the engine's thread, a failure is remembered for a
// growing while and answered at once. A READ that fails because its gateway was restarted is
// repeated after a new handshake, within the same pull.
//
// What a READ brought is believed when both stamps of the frame are the descriptor's, and a second
// READ of the header, after the first has ended, finds it unchanged: the gateway changes the header
// first. That second READ carries the notification that frees the lease. A pull that gives up
// earlier says so by a bare notification. A READ that is not over at its deadline cannot be
// stopped: its landing memory stays taken until it is.
#ifndef TENSORFERRY_ENGINE_NIXL_NIXL_PULL_ENGINE_H_
#define TENSORFERRY_ENGINE_NIXL_NIXL_PULL_ENGINE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/export.h"
#include "tensorferry/base/log.h"
#include "tensorferry/base/net.h"
#include "tensorferry/engine/nixl/nixl_library.h"
#include "tensorferry/engine/pull_engine.h"
#include "tensorferry/metrics/metrics.h"

namespace tensorferry::engine {

struct NixlPullOptions {
  AllowList allow = AllowList::Loopback();
  // Of this agent. Empty: one that no other process has.
  std::string agent_name = {};
  // A stock listener answers within 0.1 to 0.25 s.
  Duration handshake_timeout = std::chrono::seconds(2);
  Duration backoff_min = std::chrono::milliseconds(100);
  Duration backoff_max = std::chrono::seconds(5);
  // How long the destructor waits for READs that are not over before it takes the agent from under
  // them.
  Duration close_timeout = std::chrono::seconds(2);
  // For gateways whose metadata cannot be read here (a newer NIXL): the name of their agents, for
  // NIXL's own exchange.
  std::string gateway_agent_name = "smg-gateway-encode";
  // For tests: take that exchange always.
  bool own_handshake = true;
  LogSink log = {};
  std::shared_ptr<Metrics> metrics = {};  // null: nobody counts
};

// kLaneOff when there is no agent to be had.
TENSORFERRY_EXPORT absl::StatusOr<std::unique_ptr<PullEngine>> CreateNixlPullEngine(
    std::shared_ptr<const NixlLibrary> library, const NixlPullOptions& options);

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_NIXL_NIXL_PULL_ENGINE_H_
