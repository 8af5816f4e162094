// engine/ucx, worker side: asks a gateway for a lease's bytes by an active message, and receives
// them straight into the caller's memory; or asks where they lie, and fetches them by itself.
//
// One endpoint per gateway address, one owner thread per address family (ucx_puller.h); an op only
// looks whether its pull is over.
#ifndef TENSORFERRY_ENGINE_UCX_MODULE_UCX_PULL_ENGINE_H_
#define TENSORFERRY_ENGINE_UCX_MODULE_UCX_PULL_ENGINE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "tensorferry/engine/pull_engine.h"
#include "tensorferry/engine/ucx/ucx_options.h"

namespace tensorferry::engine {

absl::StatusOr<std::unique_ptr<PullEngine>> CreateUcxPullEngine(const UcxPullOptions& options);

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_UCX_MODULE_UCX_PULL_ENGINE_H_
