// Shows Metrics to Prometheus's C++ client, for programs that serve metrics of their own with it.
//
//   auto metrics = std::make_shared<tensorferry::Metrics>();
//   auto collector = std::make_shared<tensorferry::PrometheusCollector>(metrics);
//   exposer.RegisterCollectable(collector);          // prometheus::Exposer; keep the collector
//
// Who has none yet lets MetricsServer do all of that (metrics_server.h).
// Thread-safety: from any thread.
#ifndef TENSORFERRY_PROMETHEUS_COLLECTOR_H_
#define TENSORFERRY_PROMETHEUS_COLLECTOR_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <memory>
#include <utility>
#include <vector>

#include "tensorferry/base/export.h"
#include "tensorferry/metrics/metrics.h"

namespace tensorferry {

class TENSORFERRY_EXPORT PrometheusCollector final : public prometheus::Collectable {
 public:
  explicit PrometheusCollector(std::shared_ptr<const Metrics> metrics)
      : metrics_(std::move(metrics)) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const std::shared_ptr<const Metrics> metrics_;
};

}  // namespace tensorferry

#endif  // TENSORFERRY_PROMETHEUS_COLLECTOR_H_
