#include "tools/bench/statistics.h"

#include <gtest/gtest.h>

namespace tensorferry::tools::bench {
namespace {

TEST(BenchStatistics, QuantilesAreSamples) {
  std::vector<double> samples;
  for (int i = 100; i > 0; --i) samples.push_back(i);
  const Distribution d = Summarize(samples);
  EXPECT_EQ(d.count, 100u);
  EXPECT_EQ(d.p50, 50);
  EXPECT_EQ(d.p90, 90);
  EXPECT_EQ(d.p99, 99);
  EXPECT_EQ(d.max, 100);
}

TEST(BenchStatistics, OneSampleIsEveryQuantile) {
  const Distribution d = Summarize({3});
  EXPECT_EQ(d.count, 1u);
  EXPECT_EQ(d.p50, 3);
  EXPECT_EQ(d.p99, 3);
  EXPECT_EQ(d.max, 3);
}

TEST(BenchStatistics, TheMedianOfAnEvenCountIsTheLowerOne) { EXPECT_EQ(Median({4, 1, 3, 2}), 2); }

TEST(BenchStatistics, NoSampleIsNothing) {
  const Distribution d = Summarize({});
  EXPECT_EQ(d.count, 0u);
  EXPECT_EQ(d.max, 0);
}

}  // namespace
}  // namespace tensorferry::tools::bench
