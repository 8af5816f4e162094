// What many samples of one thing say together.
//
//   Distribution d = Summarize(latencies);      // d.p50, d.p90, d.p99, d.max
//
// A quantile is a value that was measured: the smallest that at least that share of all does not
// exceed.
// Thread-safety: pure functions.
#ifndef TENSORFERRY_TOOLS_BENCH_STATISTICS_H_
#define TENSORFERRY_TOOLS_BENCH_STATISTICS_H_

#include <cstddef>
#include <vector>

namespace tensorferry::tools::bench {

struct Distribution {
  size_t count = 0;
  double p50 = 0, p90 = 0, p99 = 0, max = 0;
};

// All zero for no sample.
Distribution Summarize(std::vector<double> samples);
double Median(std::vector<double> samples);

}  // namespace tensorferry::tools::bench

#endif  // TENSORFERRY_TOOLS_BENCH_STATISTICS_H_
