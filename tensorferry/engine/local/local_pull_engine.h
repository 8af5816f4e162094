// engine/local, worker side: maps the gateway's arena once and then reads leases in place.
//
//   auto engine = CreateLocalPullEngine({});
//   auto op = engine->Start(request);          // usually done at the first Step, without a system call
//
// The result borrows the gateway's memory: its `hold` is the claim, and dropping the last copy releases it, from
// any thread. When this worker already holds its share of the arena (the exporter's max_claim_percent), pulls
// end with kClaimLimit, and the puller copies or takes another way.
#ifndef TENSORFERRY_ENGINE_LOCAL_LOCAL_PULL_ENGINE_H_
#define TENSORFERRY_ENGINE_LOCAL_LOCAL_PULL_ENGINE_H_

#include <memory>
#include <optional>
#include <string>

#include "tensorferry/base/log.h"
#include "tensorferry/engine/pull_engine.h"
#include "tensorferry/wire/descriptor.h"

namespace tensorferry::engine {

struct LocalPullOptions {
  std::optional<wire::BootId> boot_id;  // for tests; default: this machine's
  LogSink log;
};

std::unique_ptr<PullEngine> CreateLocalPullEngine(const LocalPullOptions& options);

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_LOCAL_LOCAL_PULL_ENGINE_H_
