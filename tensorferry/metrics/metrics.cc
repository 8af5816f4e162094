#include "tensorferry/metrics/metrics.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace tensorferry {
namespace {

// Of a histogram: its buckets, the one beyond them, and the sum in nanoseconds.
constexpr size_t kOverflow = kBucketSeconds.size();
constexpr size_t kSum = kOverflow + 1;
constexpr size_t kHistogramCells = kSum + 1;

size_t CellsOfOne(const MetricSpec& spec) {
  return spec.kind == MetricKind::kHistogram ? kHistogramCells : 1;
}

size_t SeriesOf(const MetricSpec& spec) {
  size_t series = 1;
  for (const Label label : spec.labels) series *= SizeOf(ValuesOf(label));
  return series;
}

// Where each metric's cells begin, and behind the last their number.
const std::array<size_t, kMetricCount + 1>& Begins() {
  static const std::array<size_t, kMetricCount + 1> begins = [] {
    std::array<size_t, kMetricCount + 1> out = {};
    for (size_t i = 0; i < kMetricCount; ++i) {
      const MetricSpec& spec = MetricTable()[i];
      out[i + 1] = out[i] + SeriesOf(spec) * CellsOfOne(spec);
    }
    return out;
  }();
  return begins;
}

size_t BeginOf(Metric metric) { return Begins()[static_cast<size_t>(metric)]; }

// The first cell of a series.
size_t CellOf(const MetricSpec& spec, std::initializer_list<LabelValue> values) {
  assert(values.size() == spec.labels.size());
  size_t series = 0;
  const LabelValue* value = values.begin();
  for (const Label label : spec.labels) {
    const ValueSet set = ValuesOf(label);
    assert(value->set() == set && value->position() < SizeOf(set));
    series = series * SizeOf(set) + (value++)->position();
  }
  return BeginOf(spec.id) + series * CellsOfOne(spec);
}

std::vector<LabelPair> LabelsOf(const MetricSpec& spec, size_t series) {
  std::vector<size_t> positions(spec.labels.size());
  for (size_t i = positions.size(); i-- > 0;) {
    const size_t size = SizeOf(ValuesOf(spec.labels[i]));
    positions[i] = series % size;
    series /= size;
  }
  std::vector<LabelPair> out;
  for (size_t i = 0; i < positions.size(); ++i) AppendLabels(spec.labels[i], positions[i], &out);
  return out;
}

// Of a histogram whose cells begin at `cells`; false when it saw nothing yet.
bool ReadHistogram(const std::atomic<uint64_t>* cells, MetricSample* sample) {
  for (size_t i = 0; i < kOverflow; ++i) {
    sample->count += cells[i].load(std::memory_order_relaxed);
    sample->buckets.push_back(sample->count);
  }
  sample->count += cells[kOverflow].load(std::memory_order_relaxed);
  sample->sum = static_cast<double>(cells[kSum].load(std::memory_order_relaxed)) * 1e-9;
  return sample->count > 0;
}

}  // namespace

void Gauges::Add(Metric metric, std::initializer_list<LabelValue> values, uint64_t n) {
  const MetricSpec& spec = SpecOf(metric);
  assert(spec.kind == MetricKind::kGauge);
  std::optional<uint64_t>& cell = cells_[CellOf(spec, values)];
  cell = cell.value_or(0) + n;
}

Metrics::Metrics() : cells_(std::make_unique<std::atomic<uint64_t>[]>(Begins().back())) {}

void Metrics::Add(Metric metric, std::initializer_list<LabelValue> values, uint64_t n) {
  const MetricSpec& spec = SpecOf(metric);
  assert(spec.kind == MetricKind::kCounter);
  cells_[CellOf(spec, values)].fetch_add(n, std::memory_order_relaxed);
}

void Metrics::Observe(Metric metric, std::initializer_list<LabelValue> values, Duration took) {
  const MetricSpec& spec = SpecOf(metric);
  assert(spec.kind == MetricKind::kHistogram);
  const size_t first = CellOf(spec, values);
  const double seconds = std::chrono::duration<double>(took).count();
  const auto* const bucket =
      std::lower_bound(kBucketSeconds.begin(), kBucketSeconds.end(), seconds);
  cells_[first + static_cast<size_t>(bucket - kBucketSeconds.begin())].fetch_add(
      1, std::memory_order_relaxed);
  cells_[first + kSum].fetch_add(static_cast<uint64_t>(std::max<int64_t>(took.count(), 0)),
                                 std::memory_order_relaxed);
}

uint64_t Metrics::ValueOf(Metric metric, std::initializer_list<LabelValue> values) const {
  const MetricSpec& spec = SpecOf(metric);
  assert(spec.kind == MetricKind::kCounter);
  return cells_[CellOf(spec, values)].load(std::memory_order_relaxed);
}

Metrics::Watch Metrics::WatchBy(const std::shared_ptr<Metrics>& metrics, Source source) {
  Watch watch;
  if (!metrics) return watch;
  const std::lock_guard<std::mutex> lock(metrics->mu_);
  watch.at_ = metrics->sources_.insert(metrics->sources_.end(), std::move(source));
  watch.metrics_ = metrics;
  return watch;
}

Metrics::Watch& Metrics::Watch::operator=(Watch&& other) noexcept {
  if (this != &other) {
    End();
    metrics_ = std::move(other.metrics_);
    at_ = other.at_;
  }
  return *this;
}

void Metrics::Watch::End() {
  if (!metrics_) return;
  {
    const std::lock_guard<std::mutex> lock(metrics_->mu_);
    metrics_->sources_.erase(at_);
  }
  metrics_.reset();
}

std::vector<MetricFamily> Metrics::Collect() const {
  Gauges gauges;
  gauges.cells_.resize(Begins().back());
  {
    const std::lock_guard<std::mutex> lock(mu_);
    for (const Source& source : sources_) source(&gauges);
  }
  std::vector<MetricFamily> out;
  for (const MetricSpec& spec : MetricTable()) {
    MetricFamily family{.spec = &spec};
    const size_t series = SeriesOf(spec);
    for (size_t i = 0; i < series; ++i) {
      const size_t cell = BeginOf(spec.id) + i * CellsOfOne(spec);
      MetricSample sample;
      bool seen = false;
      switch (spec.kind) {
        case MetricKind::kCounter:
          sample.value = static_cast<double>(cells_[cell].load(std::memory_order_relaxed));
          seen = sample.value > 0;
          break;
        case MetricKind::kGauge:
          sample.value = static_cast<double>(gauges.cells_[cell].value_or(0));
          seen = gauges.cells_[cell].has_value();
          break;
        case MetricKind::kHistogram:
          seen = ReadHistogram(&cells_[cell], &sample);
          break;
      }
      if (!seen) continue;
      sample.labels = LabelsOf(spec, i);
      family.samples.push_back(std::move(sample));
    }
    if (!family.samples.empty()) out.push_back(std::move(family));
  }
  return out;
}

}  // namespace tensorferry
