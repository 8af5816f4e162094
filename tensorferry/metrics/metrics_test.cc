#include "tensorferry/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tensorferry/metrics/metrics_testing.h"

namespace tensorferry {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(MetricsTest, ASeriesIsThereFromItsFirstEventOn) {
  Metrics metrics;
  EXPECT_THAT(metrics.Collect(), IsEmpty());
  metrics.Add(Metric::kFallbacks, {Lane::kShm, Lane::kInline, LaneReason::kArenaFull});
  metrics.Add(Metric::kFallbacks, {Lane::kShm, Lane::kInline, LaneReason::kArenaFull}, 2);
  metrics.Add(Metric::kFallbacks, {Lane::kInline, Lane::kRemote, LaneReason::kOverMaxInline});
  const std::vector<MetricFamily> families = metrics.Collect();
  ASSERT_EQ(families.size(), 1U);
  EXPECT_EQ(families[0].spec->id, Metric::kFallbacks);
  ASSERT_EQ(families[0].samples.size(), 2U);
  EXPECT_THAT(families[0].samples[1].labels,
              ElementsAre(LabelPair("from", "shm"), LabelPair("to", "inline"),
                          LabelPair("reason", "arena_full")));
  EXPECT_EQ(families[0].samples[1].value, 3);
  EXPECT_EQ(families[0].samples[0].value, 1);
  EXPECT_EQ(
      metrics.ValueOf(Metric::kFallbacks, {Lane::kShm, Lane::kInline, LaneReason::kArenaFull}), 3U);
}

// Each with labels that no other series has.
TEST(MetricsTest, EverySeriesOfACounterHasAPlaceOfItsOwn) {
  Metrics metrics;
  uint64_t n = 0;
  for (const Lane from : kAllLanes) {
    for (const Lane to : kAllLanes) {
      for (size_t r = 0; r < SizeOf(ValueSet::kLaneReasons); ++r) {
        metrics.Add(Metric::kFallbacks, {from, to, static_cast<LaneReason>(r)}, ++n);
      }
    }
  }
  const std::vector<MetricFamily> families = metrics.Collect();
  ASSERT_EQ(families.size(), 1U);
  ASSERT_EQ(families[0].samples.size(), n);
  for (uint64_t i = 0; i < n; ++i) {
    EXPECT_EQ(families[0].samples[i].value, static_cast<double>(i + 1));
  }
}

TEST(MetricsTest, HistogramsAreCumulative) {
  Metrics metrics;
  const auto transport = LabelValue::Transport("tcp");
  for (const Duration took : {Duration(0), Duration(microseconds(10)), Duration(microseconds(11)),
                              Duration(seconds(1)), Duration(seconds(1000))}) {
    metrics.Observe(Metric::kReceiveDuration, {transport}, took);
  }
  const auto sample =
      FindSample(metrics, Metric::kReceiveDuration, {{"lane", "remote"}, {"transport", "tcp"}});
  ASSERT_TRUE(sample.has_value());
  EXPECT_EQ(sample->count, 5U);
  EXPECT_NEAR(sample->sum, 1001.000021, 1e-9);
  ASSERT_EQ(sample->buckets.size(), kBucketSeconds.size());
  for (size_t i = 0; i < sample->buckets.size(); ++i) {
    const uint64_t expected = kBucketSeconds[i] <= 1e-5 ? 2 : kBucketSeconds[i] < 1 ? 3 : 4;
    EXPECT_EQ(sample->buckets[i], expected) << kBucketSeconds[i];
  }
}

TEST(MetricsTest, GaugesAreAskedForAndAddUp) {
  const auto metrics = std::make_shared<Metrics>();
  uint64_t used = 7;
  auto first = Metrics::WatchBy(
      metrics, [&](Gauges* g) { g->Add(Metric::kArenaBytes, {ArenaState::kUsed}, used); });
  const auto second = Metrics::WatchBy(metrics, [&](Gauges* g) {
    g->Add(Metric::kArenaBytes, {ArenaState::kUsed}, 100);
    g->Add(Metric::kWaitingPulls, {}, 0);
  });
  EXPECT_EQ(SampleOf(*metrics, Metric::kArenaBytes, {{"state", "used"}}), 107);
  EXPECT_EQ(SampleOf(*metrics, Metric::kWaitingPulls), 0);
  used = 8;
  EXPECT_EQ(SampleOf(*metrics, Metric::kArenaBytes, {{"state", "used"}}), 108);
  Metrics::Watch moved = std::move(first);
  EXPECT_EQ(SampleOf(*metrics, Metric::kArenaBytes, {{"state", "used"}}), 108);
  moved.End();
  EXPECT_EQ(SampleOf(*metrics, Metric::kArenaBytes, {{"state", "used"}}), 100);
  EXPECT_EQ(SampleOf(*metrics, Metric::kArenaBytes, {{"state", "free"}}), -1) << "nobody said";
}

TEST(MetricsTest, NobodyNeedsToCount) {
  Count(nullptr, Metric::kHeapFallbacks, {});
  const auto watch = Metrics::WatchBy(nullptr, [](Gauges*) { FAIL(); });
}

TEST(MetricsTest, ManyThreadsCountAndOneLooks) {
  const auto metrics = std::make_shared<Metrics>();
  constexpr int kThreads = 4;
  constexpr int kEach = 10'000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        Count(metrics, Metric::kHeapFallbacks, {});
        metrics->Observe(Metric::kLeaseDuration, {}, microseconds(i));
        if (i % 100 == 0) {
          const auto watch =
              Metrics::WatchBy(metrics, [](Gauges* g) { g->Add(Metric::kBorrowedViews, {}, 1); });
        }
      }
    });
  }
  double last = 0;
  while (last < kThreads * kEach) {
    const double now = std::max(SampleOf(*metrics, Metric::kHeapFallbacks), 0.0);
    EXPECT_GE(now, last);
    last = now;
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(SampleOf(*metrics, Metric::kLeaseDuration), kThreads * kEach);
  EXPECT_EQ(SampleOf(*metrics, Metric::kBorrowedViews), -1);
}

}  // namespace
}  // namespace tensorferry
