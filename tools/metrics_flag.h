// --metrics, for the verbs that run for a while.
//
//   AddMetricsFlag(verb, &options->metrics);
//   absl::StatusOr<ServedMetrics> served = ServeMetrics(options->metrics);
//   ... {.metrics = served->metrics} ...               // null where the flag was not given
//
// Thread-safety: none.
#ifndef TENSORFERRY_TOOLS_METRICS_FLAG_H_
#define TENSORFERRY_TOOLS_METRICS_FLAG_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tensorferry/metrics/metrics.h"
#include "tensorferry/prometheus/metrics_server.h"

namespace CLI {
class App;
}

namespace tensorferry::tools {

struct ServedMetrics {
  std::shared_ptr<Metrics> metrics = {};
  std::unique_ptr<MetricsServer> server = {};

  // Where they are served, "127.0.0.1:9464"; empty when they are not.
  std::string address() const { return server ? server->address().ToString() : std::string(); }
};

void AddMetricsFlag(CLI::App* verb, std::string* address);
// Nothing is counted or served when `address` is empty. kAddressInUse, kBadAddress.
absl::StatusOr<ServedMetrics> ServeMetrics(const std::string& address);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_METRICS_FLAG_H_
