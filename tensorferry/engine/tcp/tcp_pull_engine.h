// engine/tcp, worker side: asks a gateway for a lease's bytes and receives them straight into the
// caller's memory.
//
//   auto engine = CreateTcpPullEngine({.allow = *AllowList::Parse({"10.0.0.0/24"})});
//   auto op = engine->Start(request);
//
// One exchange at a time on a connection, so that giving up is closing it and touches no other
// pull. Idle connections are kept per gateway address. From `split_bytes` on, two connections carry
// two halves. State per gateway: connecting is single-flight, a failure is remembered for a growing
// while and answered at once (kUnreachable, retryable), and a connection that turns out dead (the
// gateway was restarted) is replaced within the same pull.
#ifndef TENSORFERRY_ENGINE_TCP_TCP_PULL_ENGINE_H_
#define TENSORFERRY_ENGINE_TCP_TCP_PULL_ENGINE_H_

#include <memory>

#include "tensorferry/base/clock.h"
#include "tensorferry/base/log.h"
#include "tensorferry/base/net.h"
#include "tensorferry/engine/pull_engine.h"
#include "tensorferry/metrics/metrics.h"

namespace tensorferry::engine {

struct TcpPullOptions {
  AllowList allow = AllowList::Loopback();
  uint64_t split_bytes = (uint64_t{2} << 20) + 1;
  uint32_t idle_connections = 8;  // kept per gateway address
  // Shorter than most pulls: a gateway that swallows packets is known to be silent before they all
  // end.
  Duration connect_timeout = std::chrono::seconds(2);
  Duration backoff_min = std::chrono::milliseconds(100);
  Duration backoff_max = std::chrono::seconds(5);
  LogSink log = {};
  std::shared_ptr<Metrics> metrics = {};  // counts handshakes; null: nobody does
};

std::unique_ptr<PullEngine> CreateTcpPullEngine(const TcpPullOptions& options);

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_TCP_TCP_PULL_ENGINE_H_
