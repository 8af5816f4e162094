// Times as flags have them.
//
//   side.timeout = ToDuration(options.timeout);
//
// Thread-safety: a pure function.
#ifndef TENSORFERRY_TOOLS_SECONDS_H_
#define TENSORFERRY_TOOLS_SECONDS_H_

#include <algorithm>
#include <chrono>

#include "tensorferry/base/clock.h"

namespace tensorferry::tools {

// At most a year, which can be added to the time of any clock.
inline Duration ToDuration(double seconds) {
  constexpr double kYear = 365.0 * 24 * 3600;
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(std::min(seconds, kYear)));
}

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_SECONDS_H_
