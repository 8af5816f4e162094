#include "tools/nixl_engines.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "tensorferry/base/error.h"
#include "tensorferry/engine/nixl/nixl_library.h"
#include "tensorferry/engine/nixl/nixl_pull_engine.h"
#include "tools/settings.h"

namespace tensorferry::tools {

void AddNixlFlags(CLI::App* verb, NixlFlags* flags) {
  verb->add_option("--nixl-lib", flags->lib,
                   "folder of libnixl_capi.so (default: $TENSORFERRY_NIXL_LIB, the loader's path, "
                   "an installed wheel)");
}

void AddNixlExportFlags(CLI::App* verb, NixlFlags* flags) {
  AddNixlFlags(verb, flags);
  verb->add_flag(
      "--nixl-in-process", flags->in_process,
      "keep the nixl agent in this process, as RDMA cards want it: over tcp a worker that "
      "dies can then end it");
}

absl::StatusOr<std::unique_ptr<engine::PullEngine>> OpenNixlPull(const NixlFlags& flags,
                                                                 const AllowList& allow,
                                                                 const LogSink& log,
                                                                 std::shared_ptr<Metrics> metrics) {
  KeepUcxOffStandardOutput();
  absl::StatusOr<std::shared_ptr<const engine::NixlLibrary>> library =
      engine::NixlLibrary::Open(NixlLibrarySettings(flags.lib));
  if (!library.ok()) return library.status();
  engine::NixlPullOptions options;
  options.allow = allow;
  options.log = log;
  options.metrics = std::move(metrics);
  return engine::CreateNixlPullEngine(*std::move(library), options);
}

absl::StatusOr<std::unique_ptr<engine::NixlExportEngine>> OpenNixlExport(
    const NixlFlags& flags, const std::string& listen, const LogSink& log,
    std::shared_ptr<Metrics> metrics) {
  const absl::StatusOr<SocketAddress> address = SocketAddress::Parse(listen);
  if (!address.ok()) return Annotate(address.status(), "--listen");
  engine::NixlExportOptions options;
  options.library = NixlLibrarySettings(flags.lib);
  options.listen = *address;
  if (!flags.agent_name.empty()) options.agent_name = flags.agent_name;
  options.agent_program = NixlAgentProgram();
  options.in_process = flags.in_process;
  if (flags.in_process) KeepUcxOffStandardOutput();
  options.log = log;
  options.metrics = std::move(metrics);
  return engine::NixlExportEngine::Create(options);
}

}  // namespace tensorferry::tools
