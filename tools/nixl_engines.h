// The two ends of engine/nixl as the command's verbs open them.
//
//   NixlFlags flags;
//   AddNixlFlags(verb, &flags);                                   // --nixl-lib
//   absl::StatusOr<std::unique_ptr<engine::PullEngine>> nixl = OpenNixlPull(flags, allow, log);
//
// Thread-safety: none. NIXL's library is opened by the call, not before.
#ifndef TENSORFERRY_TOOLS_NIXL_ENGINES_H_
#define TENSORFERRY_TOOLS_NIXL_ENGINES_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tensorferry/base/log.h"
#include "tensorferry/base/net.h"
#include "tensorferry/engine/nixl/nixl_export_engine.h"
#include "tensorferry/engine/pull_engine.h"
#include "tensorferry/metrics/metrics.h"

namespace CLI {
class App;
}

namespace tensorferry::tools {

struct NixlFlags {
  std::string lib = {};  // folder
  // Of an exporter's agent. Without a name: the stock one.
  bool in_process = false;
  std::string agent_name = {};
};

void AddNixlFlags(CLI::App* verb, NixlFlags* flags);
// And what concerns exporters alone: --nixl-in-process.
void AddNixlExportFlags(CLI::App* verb, NixlFlags* flags);

// kLaneOff, in one line, where there is no NIXL.
absl::StatusOr<std::unique_ptr<engine::PullEngine>> OpenNixlPull(
    const NixlFlags& flags, const AllowList& allow, const LogSink& log,
    std::shared_ptr<Metrics> metrics = {});
absl::StatusOr<std::unique_ptr<engine::NixlExportEngine>> OpenNixlExport(
    const NixlFlags& flags, const std::string& listen, const LogSink& log,
    std::shared_ptr<Metrics> metrics = {});

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_NIXL_ENGINES_H_
