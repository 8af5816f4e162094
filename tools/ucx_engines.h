// The two ends of engine/ucx as the command's verbs open them.
//
//   UcxFlags flags;
//   AddUcxFlags(verb, &flags);                     // --ucx-module, --trusted-network, …
//   absl::StatusOr<std::unique_ptr<engine::PullEngine>> ucx = OpenUcxPull(flags, allow, log);
//
// Thread-safety: none. The module is opened by the call, not before.
#ifndef TENSORFERRY_TOOLS_UCX_ENGINES_H_
#define TENSORFERRY_TOOLS_UCX_ENGINES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/base/log.h"
#include "tensorferry/base/net.h"
#include "tensorferry/engine/pull_engine.h"
#include "tensorferry/engine/ucx/ucx_module.h"
#include "tensorferry/metrics/metrics.h"

namespace CLI {
class App;
}

namespace tensorferry::tools {

struct UcxFlags {
  std::string module = {};
  std::string transports = {};
  std::vector<std::string> devices = {};
  std::string port_range = {};
  bool trusted_network = false;
  std::string get = "off";  // or "on", "emulated"
  std::string rdma_devices = "/sys/class/infiniband";
  std::string listen = {};  // of an exporter
};

void AddUcxFlags(CLI::App* verb, UcxFlags* flags);
// And what concerns exporters alone: --ucx-listen.
void AddUcxExportFlags(CLI::App* verb, UcxFlags* flags);

// What both ends are told. Looks for this host's devices.
engine::UcxOptions UcxOptionsOf(const UcxFlags& flags);

// kLaneOff, in one line, where there is no module or no UCX.
absl::StatusOr<std::shared_ptr<const engine::UcxModule>> OpenUcxModule(const UcxFlags& flags);
absl::StatusOr<std::unique_ptr<engine::PullEngine>> OpenUcxPull(
    const UcxFlags& flags, const AllowList& allow, const LogSink& log,
    std::shared_ptr<Metrics> metrics = {});
// At --ucx-listen; else at `listen`, with a free port where tcp has that one (`beside_tcp`).
absl::StatusOr<std::unique_ptr<engine::UcxExportEngine>> OpenUcxExport(
    const UcxFlags& flags, const std::string& listen, bool beside_tcp, const LogSink& log,
    std::shared_ptr<Metrics> metrics = {});

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_UCX_ENGINES_H_
