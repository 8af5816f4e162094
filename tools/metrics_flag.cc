#include "tools/metrics_flag.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "tensorferry/base/error.h"
#include "tools/worker_facts.h"

namespace tensorferry::tools {

void AddMetricsFlag(CLI::App* verb, std::string* address) {
  verb->add_option(
      "--metrics", *address,
      "HOST:PORT to serve metrics for Prometheus at, under /metrics; port 0 picks one");
}

absl::StatusOr<ServedMetrics> ServeMetrics(const std::string& address) {
  ServedMetrics out;
  if (address.empty()) return out;
  const absl::StatusOr<SocketAddress> listen = Resolve(address, "--metrics");
  if (!listen.ok()) return listen.status();
  out.metrics = std::make_shared<Metrics>();
  absl::StatusOr<std::unique_ptr<MetricsServer>> server =
      MetricsServer::Start(out.metrics, *listen);
  if (!server.ok()) return Annotate(server.status(), "--metrics");
  out.server = *std::move(server);
  return out;
}

}  // namespace tensorferry::tools
