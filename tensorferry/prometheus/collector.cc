#include "tensorferry/prometheus/collector.h"

#include <limits>
#include <string>

namespace tensorferry {
namespace {

prometheus::MetricType TypeOf(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter:
      return prometheus::MetricType::Counter;
    case MetricKind::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricKind::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

prometheus::ClientMetric::Histogram HistogramOf(const MetricSample& sample) {
  prometheus::ClientMetric::Histogram out;
  out.sample_count = sample.count;
  out.sample_sum = sample.sum;
  for (size_t i = 0; i < sample.buckets.size(); ++i) {
    out.bucket.push_back({sample.buckets[i], kBucketSeconds[i]});
  }
  out.bucket.push_back({sample.count, std::numeric_limits<double>::infinity()});
  return out;
}

prometheus::ClientMetric Convert(MetricKind kind, const MetricSample& sample) {
  prometheus::ClientMetric out;
  for (const auto& [name, value] : sample.labels) {
    out.label.push_back({std::string(name), std::string(value)});
  }
  switch (kind) {
    case MetricKind::kCounter:
      out.counter.value = sample.value;
      break;
    case MetricKind::kGauge:
      out.gauge.value = sample.value;
      break;
    case MetricKind::kHistogram:
      out.histogram = HistogramOf(sample);
      break;
  }
  return out;
}

}  // namespace

std::vector<prometheus::MetricFamily> PrometheusCollector::Collect() const {
  std::vector<prometheus::MetricFamily> out;
  for (const MetricFamily& family : metrics_->Collect()) {
    prometheus::MetricFamily& converted = out.emplace_back();
    converted.name = std::string(family.spec->name);
    converted.help = std::string(family.spec->help);
    converted.type = TypeOf(family.spec->kind);
    for (const MetricSample& sample : family.samples) {
      converted.metric.push_back(Convert(family.spec->kind, sample));
    }
  }
  return out;
}

}  // namespace tensorferry
