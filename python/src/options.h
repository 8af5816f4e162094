// Values that Python's calls take, as the library wants them.
//
//   options.timeout = Seconds(timeout);
//
// Thread-safety: pure functions.
#ifndef TENSORFERRY_PYTHON_SRC_OPTIONS_H_
#define TENSORFERRY_PYTHON_SRC_OPTIONS_H_

#include <chrono>
#include <cmath>

#include "python/src/errors.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/text.h"

namespace tensorferry::python {

// Infinity, and what is longer than the clock can count, is for ever.
inline Duration Seconds(double seconds) {
  if (std::isnan(seconds)) ThrowError(Reason::kBadOption, "a time is not a number");
  constexpr double kLongest = 9e9;  // seconds: the nanoseconds still fit
  if (seconds >= kLongest) return Duration::max();
  if (seconds <= 0) return Duration::zero();
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace tensorferry::python

#endif  // TENSORFERRY_PYTHON_SRC_OPTIONS_H_
