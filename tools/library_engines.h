// The engines of lane remote that need a library of their own, which is looked for at run time.
//
//   EngineFlags flags;
//   for (const LibraryEngine& e : LibraryEngines()) {
//     if (wanted(e.transport)) auto engine = e.open_pull(flags, allow, log, metrics);
//   }
//
// Such an engine is a row of the table in library_engines.cc.
// Thread-safety: none. A library is opened by the call, not before.
#ifndef TENSORFERRY_TOOLS_LIBRARY_ENGINES_H_
#define TENSORFERRY_TOOLS_LIBRARY_ENGINES_H_

#include <memory>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "tensorferry/base/log.h"
#include "tensorferry/base/net.h"
#include "tensorferry/engine/pull_engine.h"
#include "tensorferry/metrics/metrics.h"
#include "tools/nixl_engines.h"
#include "tools/ucx_engines.h"

namespace tensorferry::tools {

struct EngineFlags {
  NixlFlags nixl = {};
  UcxFlags ucx = {};
};

struct LibraryEngine {
  std::string_view transport;
  // kLaneOff, in one line, where there is no library.
  absl::StatusOr<std::unique_ptr<engine::PullEngine>> (*open_pull)(const EngineFlags&,
                                                                   const AllowList&, const LogSink&,
                                                                   std::shared_ptr<Metrics>);
};

std::span<const LibraryEngine> LibraryEngines();

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_LIBRARY_ENGINES_H_
