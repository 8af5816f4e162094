// Lets through the first few of many like log lines, and counts the others: a flood costs a line
// now and then that says how many there were.
//
//   LogLimit limit({.burst = 5, .period = std::chrono::seconds(10)});
//   if (const auto suppressed = limit.Admit(kind, clock.Now())) Log(..., *suppressed);
//
// Time is a parameter. Each kind has a count of its own, so that a frequent one cannot hide a rare
// one; kinds are numbers of the caller's, few enough to be kept for ever.
// Thread-safety: from any thread.
#ifndef TENSORFERRY_BASE_LOG_LIMIT_H_
#define TENSORFERRY_BASE_LOG_LIMIT_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "tensorferry/base/clock.h"

namespace tensorferry {

struct LogLimitOptions {
  // At most so many lines of one kind in one period.
  uint32_t burst = 5;
  Duration period = std::chrono::seconds(10);
};

class LogLimit {
 public:
  explicit LogLimit(const LogLimitOptions& options = {}) : options_(options) {}

  // None: no line. Otherwise how many of this kind got none since its last one.
  std::optional<uint64_t> Admit(size_t kind, Instant now) {
    const std::lock_guard<std::mutex> lock(mu_);
    Kind& k = kinds_[kind];
    if (now >= k.period_ends) {
      k.period_ends = SaturatingAdd(now, options_.period);
      k.lines = 0;
    }
    if (k.lines >= options_.burst) {
      ++k.suppressed;
      return std::nullopt;
    }
    ++k.lines;
    return std::exchange(k.suppressed, 0);
  }

 private:
  struct Kind {
    Instant period_ends = Instant::min();
    uint32_t lines = 0;
    uint64_t suppressed = 0;
  };

  const LogLimitOptions options_;
  std::mutex mu_;
  absl::flat_hash_map<size_t, Kind> kinds_;
};

}  // namespace tensorferry

#endif  // TENSORFERRY_BASE_LOG_LIMIT_H_
