#include "tensorferry/metrics/metrics_testing.h"

namespace tensorferry {

std::optional<MetricSample> FindSample(const Metrics& metrics, Metric metric,
                                       const std::vector<LabelPair>& labels) {
  for (const MetricFamily& family : metrics.Collect()) {
    if (family.spec->id != metric) continue;
    for (const MetricSample& sample : family.samples) {
      if (sample.labels == labels) return sample;
    }
  }
  return std::nullopt;
}

double SampleOf(const Metrics& metrics, Metric metric, const std::vector<LabelPair>& labels) {
  const std::optional<MetricSample> sample = FindSample(metrics, metric, labels);
  if (!sample) return -1;
  const bool histogram = SpecOf(metric).kind == MetricKind::kHistogram;
  return histogram ? static_cast<double>(sample->count) : sample->value;
}

}  // namespace tensorferry
