#include "tools/bench/statistics.h"

#include <algorithm>
#include <cmath>

namespace tensorferry::tools::bench {
namespace {

double Quantile(const std::vector<double>& sorted, double share) {
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<size_t>(rank, 1) - 1];
}

}  // namespace

Distribution Summarize(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  return {.count = samples.size(),
          .p50 = Quantile(samples, 0.5),
          .p90 = Quantile(samples, 0.9),
          .p99 = Quantile(samples, 0.99),
          .max = samples.back()};
}

double Median(std::vector<double> samples) { return Summarize(std::move(samples)).p50; }

}  // namespace tensorferry::tools::bench
