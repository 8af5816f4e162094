#include "tools/ucx_engines.h"

#include <CLI/CLI.hpp>
#include <string_view>
#include <utility>

#include "tensorferry/base/error.h"
#include "tensorferry/engine/remote_choice.h"
#include "tools/output.h"
#include "tools/settings.h"

namespace tensorferry::tools {
namespace {

engine::UcxGet GetOf(std::string_view text) {
  if (text == "on") return engine::UcxGet::kOn;
  return text == "emulated" ? engine::UcxGet::kEvenEmulated : engine::UcxGet::kOff;
}

engine::UcxOptions OptionsOf(const UcxFlags& flags, const LogSink& log,
                             std::shared_ptr<Metrics> metrics) {
  engine::UcxOptions options = UcxOptionsOf(flags);
  options.log = log;
  options.metrics = std::move(metrics);
  return options;
}

}  // namespace

void AddUcxFlags(CLI::App* verb, UcxFlags* flags) {
  constexpr char kGroup[] = "UCX (docs/ucx.md)";
  verb->add_option("--ucx-module", flags->module,
                   "libtensorferry_ucx.so or its folder (default: $TENSORFERRY_UCX_MODULE, then "
                   "where it was installed)")
      ->group(kGroup);
  verb->add_option("--ucx-transports", flags->transports,
                   "UCX's transports, such as rc,ud or tcp (default: RDMA where there is a device)")
      ->group(kGroup);
  verb->add_option("--ucx-devices", flags->devices, "network devices, such as mlx5_0:1 or eth1")
      ->delimiter(',')
      ->group(kGroup);
  verb->add_option("--ucx-port-range", flags->port_range, "LOW-HIGH for UCX's own tcp sockets")
      ->group(kGroup);
  verb->add_flag("--trusted-network", flags->trusted_network,
                 "let UCX use tcp beyond this host: whoever reaches its ports can write this "
                 "process's memory")
      ->group(kGroup);
  verb->add_option("--ucx-get", flags->get,
                   "workers read the gateway's memory by themselves, where both ends say so: off, "
                   "on (RDMA transports), or emulated (any, to measure it)")
      ->capture_default_str()
      ->check(CLI::IsMember({"off", "on", "emulated"}))
      ->group(kGroup);
  verb->add_option("--rdma-devices", flags->rdma_devices, "folder of this host's RDMA devices")
      ->capture_default_str()
      ->group(kGroup);
}

void AddUcxExportFlags(CLI::App* verb, UcxFlags* flags) {
  AddUcxFlags(verb, flags);
  verb->add_option("--ucx-listen", flags->listen,
                   "IP:PORT that ucx readers dial (default: --listen; beside tcp, a free port)")
      ->group("UCX (docs/ucx.md)")
      ->check([](const std::string& text) { return UsageOf(SocketAddress::Parse(text).status()); });
}

engine::UcxOptions UcxOptionsOf(const UcxFlags& flags) {
  engine::UcxOptions options;
  options.rdma_devices = engine::ActiveRdmaDevices(flags.rdma_devices);
  options.transports = flags.transports;
  options.devices = flags.devices;
  options.port_range = flags.port_range;
  options.trusted_network = flags.trusted_network;
  options.get = GetOf(flags.get);
  return options;
}

absl::StatusOr<std::shared_ptr<const engine::UcxModule>> OpenUcxModule(const UcxFlags& flags) {
  KeepUcxOffStandardOutput();
  return engine::UcxModule::Open(UcxModuleSettings(flags.module));
}

absl::StatusOr<std::unique_ptr<engine::PullEngine>> OpenUcxPull(const UcxFlags& flags,
                                                                const AllowList& allow,
                                                                const LogSink& log,
                                                                std::shared_ptr<Metrics> metrics) {
  const auto module = OpenUcxModule(flags);
  if (!module.ok()) return module.status();
  engine::UcxPullOptions options;
  options.ucx = OptionsOf(flags, log, std::move(metrics));
  options.allow = allow;
  return (*module)->CreatePull(options);
}

absl::StatusOr<std::unique_ptr<engine::UcxExportEngine>> OpenUcxExport(
    const UcxFlags& flags, const std::string& listen, bool beside_tcp, const LogSink& log,
    std::shared_ptr<Metrics> metrics) {
  absl::StatusOr<SocketAddress> address =
      SocketAddress::Parse(flags.listen.empty() ? listen : flags.listen);
  if (!address.ok()) return Annotate(address.status(), "--listen");
  if (flags.listen.empty() && beside_tcp) address->set_port(0);
  const auto module = OpenUcxModule(flags);
  if (!module.ok()) return module.status();
  engine::UcxExportOptions options;
  options.ucx = OptionsOf(flags, log, std::move(metrics));
  options.listen = *address;
  return (*module)->CreateExport(options);
}

}  // namespace tensorferry::tools
