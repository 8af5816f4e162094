// engine/ucx, gateway side: answers read requests that come as active messages, straight from the
// arena.
//
// With `get` it also tells where a lease lies and how to get at it, and readers fetch by
// themselves: it hears nothing of those until they are done.
//
// One thread owns the listener, the readers' endpoints and UCX's worker. A lease stays pinned until
// UCX has completed its answer. A reader that does not take its answer in its own time, or in
// `answer_timeout` where it named none, is cut off by closing its endpoint by force, which completes
// what is under way.
#ifndef TENSORFERRY_ENGINE_UCX_MODULE_UCX_EXPORT_ENGINE_H_
#define TENSORFERRY_ENGINE_UCX_MODULE_UCX_EXPORT_ENGINE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "tensorferry/engine/ucx/ucx_options.h"

namespace tensorferry::engine {

absl::StatusOr<std::unique_ptr<UcxExportEngine>> CreateUcxExportEngine(
    const UcxExportOptions& options);

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_UCX_MODULE_UCX_EXPORT_ENGINE_H_
