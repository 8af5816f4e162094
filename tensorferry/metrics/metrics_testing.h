// What metrics show, for tests.
//
//   EXPECT_EQ(SampleOf(*metrics, Metric::kArenaBytes, {{"state", "used"}}), 64);
//
// Thread-safety: pure functions.
#ifndef TENSORFERRY_METRICS_METRICS_TESTING_H_
#define TENSORFERRY_METRICS_METRICS_TESTING_H_

#include <optional>
#include <vector>

#include "tensorferry/metrics/metrics.h"

namespace tensorferry {

// Of exactly these labels; none when there is no such series.
std::optional<MetricSample> FindSample(const Metrics& metrics, Metric metric,
                                       const std::vector<LabelPair>& labels);
// The value of a counter or a gauge, how many a histogram saw; -1 when there is no such series.
double SampleOf(const Metrics& metrics, Metric metric, const std::vector<LabelPair>& labels = {});

}  // namespace tensorferry

#endif  // TENSORFERRY_METRICS_METRICS_TESTING_H_
