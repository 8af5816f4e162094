// Serves metrics at a port that the system picks.
#include <iostream>

#include "tensorferry/prometheus/metrics_server.h"

int main() {
  const auto metrics = std::make_shared<tensorferry::Metrics>();
  metrics->Add(tensorferry::Metric::kHeapFallbacks, {}, 3);
  metrics->Add(tensorferry::Metric::kReceivedBytes, {tensorferry::LabelValue::Transport("tcp")});
  const auto server =
      tensorferry::MetricsServer::Start(metrics, *tensorferry::SocketAddress::Parse("127.0.0.1:0"));
  if (!server.ok()) return 1;
  std::cout << (*server)->address().HostText() << ' ' << metrics->Collect().size() << '\n';
  return 0;
}
