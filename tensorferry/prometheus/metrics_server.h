// Serves Metrics to a Prometheus that scrapes them: GET /metrics at one address.
//
//   auto server = MetricsServer::Start(metrics, *SocketAddress::Parse("127.0.0.1:9464"));
//   (*server)->address();                             // port 0 picked one
//
// Everybody who reaches the address may read: no secrets are in it, but how busy this process is.
// The web server behind it has the process ignore SIGPIPE.
// Thread-safety: from any thread.
// Ownership: its threads are joined by the destructor.
#ifndef TENSORFERRY_PROMETHEUS_METRICS_SERVER_H_
#define TENSORFERRY_PROMETHEUS_METRICS_SERVER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "tensorferry/base/export.h"
#include "tensorferry/base/net.h"
#include "tensorferry/metrics/metrics.h"

namespace tensorferry {

class TENSORFERRY_EXPORT MetricsServer {
 public:
  // Any address of this host, a wildcard too. kAddressInUse, kBadAddress.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(
      std::shared_ptr<const Metrics> metrics, const SocketAddress& listen);
  ~MetricsServer();

  // The bound one.
  const SocketAddress& address() const;

 private:
  struct State;
  explicit MetricsServer(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

}  // namespace tensorferry

#endif  // TENSORFERRY_PROMETHEUS_METRICS_SERVER_H_
