// What a process counts of its tensors, for whatever serves it: Prometheus (tensorferry/prometheus),
// or a system of your own.
//
//   auto metrics = std::make_shared<Metrics>();
//   auto exporter = Exporter::Create({..., .metrics = metrics});      // and Sender, or Puller
//   for (const MetricFamily& family : metrics->Collect()) ...         // at each scrape
//
// The parts that are given one count into it as they work; without one they count nothing. Counting
// is an addition to an atomic number in an array: no lock, no allocation, no look-up. What can be
// asked for (how full the arena is) is asked for by Collect, of whoever Watch was told of. Several
// exporters or pullers may share one: their numbers add up. A series is there from its first event
// on.
// Thread-safety: everything from any thread.
// Ownership: shared by all who count.
#ifndef TENSORFERRY_METRICS_METRICS_H_
#define TENSORFERRY_METRICS_METRICS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tensorferry/base/clock.h"
#include "tensorferry/base/export.h"
#include "tensorferry/metrics/metric_table.h"

namespace tensorferry {

struct MetricSample {
  std::vector<LabelPair> labels = {};
  double value = 0;  // of a counter or a gauge
  // Of a histogram: how many were at most kBucketSeconds[i], of how many, and their sum.
  std::vector<uint64_t> buckets = {};
  uint64_t count = 0;
  double sum = 0;
};

struct MetricFamily {
  const MetricSpec* spec = nullptr;
  std::vector<MetricSample> samples = {};  // at least one
};

class Metrics;

// What a source says of its gauges at one Collect.
class TENSORFERRY_EXPORT Gauges {
 public:
  // On top of what others said.
  void Add(Metric metric, std::initializer_list<LabelValue> values, uint64_t n);

 private:
  friend class Metrics;
  std::vector<std::optional<uint64_t>> cells_;
};

class TENSORFERRY_EXPORT Metrics {
 public:
  Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Of a counter: one value for each of its labels, in the table's order.
  void Add(Metric metric, std::initializer_list<LabelValue> values, uint64_t n = 1);
  // Of a histogram.
  void Observe(Metric metric, std::initializer_list<LabelValue> values, Duration took);
  // What a counter stands at.
  uint64_t ValueOf(Metric metric, std::initializer_list<LabelValue> values) const;

  // Calls `source` at each Collect, until the Watch is destroyed; then it is not running any more.
  // `source` must not come back to this object.
  using Source = std::function<void(Gauges*)>;
  class Watch;
  [[nodiscard]] static Watch WatchBy(const std::shared_ptr<Metrics>& metrics, Source source);

  // Families that have a sample, in the table's order.
  std::vector<MetricFamily> Collect() const;

 private:
  const std::unique_ptr<std::atomic<uint64_t>[]> cells_;
  mutable std::mutex mu_;
  std::list<Source> sources_;
};

// Movable; an empty one watches nothing.
class TENSORFERRY_EXPORT Metrics::Watch {
 public:
  Watch() = default;
  Watch(Watch&& other) noexcept = default;
  Watch& operator=(Watch&& other) noexcept;
  ~Watch() { End(); }
  void End();

 private:
  friend class Metrics;
  std::shared_ptr<Metrics> metrics_;
  std::list<Source>::iterator at_ = {};
};

// Where metrics may be null: nobody counts then.
inline void Count(const std::shared_ptr<Metrics>& metrics, Metric metric,
                  std::initializer_list<LabelValue> values, uint64_t n = 1) {
  if (metrics) metrics->Add(metric, values, n);
}

}  // namespace tensorferry

#endif  // TENSORFERRY_METRICS_METRICS_H_
