#include "tensorferry/base/log_limit.h"

#include <gtest/gtest.h>

namespace tensorferry {
namespace {

using std::chrono::seconds;

TEST(LogLimitTest, LetsABurstThroughAndCountsTheRest) {
  ManualClock clock;
  LogLimit limit({.burst = 2, .period = seconds(10)});
  EXPECT_EQ(limit.Admit(7, clock.Now()), 0U);
  EXPECT_EQ(limit.Admit(7, clock.Now()), 0U);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(limit.Admit(7, clock.Now()), std::nullopt);
  clock.Advance(seconds(10) - Duration(1));
  EXPECT_EQ(limit.Admit(7, clock.Now()), std::nullopt);
  clock.Advance(Duration(1));
  EXPECT_EQ(limit.Admit(7, clock.Now()), 6U);
  EXPECT_EQ(limit.Admit(7, clock.Now()), 0U);
  EXPECT_EQ(limit.Admit(7, clock.Now()), std::nullopt);
}

TEST(LogLimitTest, AFrequentKindDoesNotHideARareOne) {
  ManualClock clock;
  LogLimit limit({.burst = 1, .period = seconds(10)});
  EXPECT_EQ(limit.Admit(1, clock.Now()), 0U);
  EXPECT_EQ(limit.Admit(1, clock.Now()), std::nullopt);
  EXPECT_EQ(limit.Admit(2, clock.Now()), 0U);
}

}  // namespace
}  // namespace tensorferry
