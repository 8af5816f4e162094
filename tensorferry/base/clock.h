// Time as this library sees it: durations and a monotonic clock that a test can replace.
//
//   Duration ttl = std::chrono::seconds(210);
//   Instant ends = SaturatingAdd(clock.Now(), ttl);
//
// No wall clock: a step of the system's date must not end a lease or a pull.
// Thread-safety: RealClock and ManualClock may be used from any thread.
#ifndef TENSORFERRY_BASE_CLOCK_H_
#define TENSORFERRY_BASE_CLOCK_H_

#include <atomic>
#include <chrono>

namespace tensorferry {

using Duration = std::chrono::nanoseconds;
using Instant = std::chrono::time_point<std::chrono::steady_clock, Duration>;

inline constexpr Instant kNever = Instant::max();

// `t + d`, which stays at kNever instead of overflowing. `d` may be negative.
constexpr Instant SaturatingAdd(Instant t, Duration d) {
  if (t == kNever) return kNever;
  const auto since = t.time_since_epoch();
  if (d > Duration::zero() && since > Duration::max() - d) return kNever;
  if (d < Duration::zero() && since < Duration::min() - d) return Instant::min();
  return t + d;
}

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant Now() const = 0;
};

class RealClock final : public Clock {
 public:
  Instant Now() const override { return std::chrono::steady_clock::now(); }
};

// Moves only when told to.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(Instant start = Instant(std::chrono::hours(1))) : now_(start) {}
  Instant Now() const override { return now_.load(); }
  void Advance(Duration d) { now_.store(SaturatingAdd(now_.load(), d)); }

 private:
  std::atomic<Instant> now_;
};

}  // namespace tensorferry

#endif  // TENSORFERRY_BASE_CLOCK_H_
