// engine/local, worker side: maps the gateway's arena once and then reads leases in place.
//
//   auto engine = CreateLocalPullEngine({});
//   auto op = engine->Start(request);          // usually done at the first Step
//
// Without memory to copy into, the result borrows the gateway's memory: its `hold` is the claim,
// and dropping the last copy releases it, from any thread, also after the engine or the gateway has
// gone. When this worker already holds its share of the arena (the exporter's max_claim_percent),
// pulls end with kClaimLimit, and the puller copies or takes another way. A copy is made a few MiB
// per Step, and needs a claim only while it runs.
//
// A gateway that was restarted is connected to within the same pull; kWrongInstance when another
// one than the descriptor's answers at the path (also where two containers of one host use the same
// path for different gateways, so another way may still work).
//
// Thread-safety: see PullEngine. In a forked child nothing is mapped: pulls end with kLaneOff, and
// bytes that the parent had borrowed must not be touched.
#ifndef TENSORFERRY_ENGINE_LOCAL_LOCAL_PULL_ENGINE_H_
#define TENSORFERRY_ENGINE_LOCAL_LOCAL_PULL_ENGINE_H_

#include <chrono>
#include <memory>
#include <optional>

#include "tensorferry/base/clock.h"
#include "tensorferry/base/log.h"
#include "tensorferry/engine/pull_engine.h"
#include "tensorferry/metrics/metrics.h"
#include "tensorferry/wire/descriptor.h"

namespace tensorferry::engine {

struct LocalPullOptions {
  std::optional<wire::BootId> boot_id = {};  // for tests; default: this machine's
  // A gateway that does not answer a connection for so long is kUnreachable (a running one needs
  // microseconds), and is not asked again for as long.
  Duration connect_timeout = std::chrono::seconds(1);
  LogSink log = {};
  std::shared_ptr<Metrics> metrics = {};  // counts handshakes; null: nobody does
};

std::unique_ptr<PullEngine> CreateLocalPullEngine(const LocalPullOptions& options);

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_LOCAL_LOCAL_PULL_ENGINE_H_
