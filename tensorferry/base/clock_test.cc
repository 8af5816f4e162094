#include "tensorferry/base/clock.h"

#include "gtest/gtest.h"

namespace tensorferry {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;

TEST(SaturatingAddTest, AddsAndSubtracts) {
  const Instant t(seconds(10));
  EXPECT_EQ(SaturatingAdd(t, seconds(5)), Instant(seconds(15)));
  EXPECT_EQ(SaturatingAdd(t, seconds(-15)), Instant(seconds(-5)));
}

TEST(SaturatingAddTest, StopsAtBothEnds) {
  const Instant late(Duration::max() - nanoseconds(1));
  EXPECT_EQ(SaturatingAdd(late, nanoseconds(1)), kNever);
  EXPECT_EQ(SaturatingAdd(late, nanoseconds(2)), kNever);
  EXPECT_EQ(SaturatingAdd(late, Duration::max()), kNever);
  const Instant early(Duration::min() + nanoseconds(1));
  EXPECT_EQ(SaturatingAdd(early, nanoseconds(-2)), Instant::min());
  EXPECT_EQ(SaturatingAdd(early, Duration::min()), Instant::min());
  EXPECT_EQ(SaturatingAdd(Instant(seconds(-1)), Duration::max()),
            Instant(Duration::max() - seconds(1)));
}

TEST(SaturatingAddTest, NeverStaysNever) {
  EXPECT_EQ(SaturatingAdd(kNever, seconds(-5)), kNever);
  EXPECT_EQ(SaturatingAdd(kNever, Duration::min()), kNever);
}

TEST(ManualClockTest, MovesOnlyWhenTold) {
  ManualClock clock;
  const Instant start = clock.Now();
  EXPECT_EQ(clock.Now(), start);
  clock.Advance(seconds(3));
  EXPECT_EQ(clock.Now() - start, seconds(3));
  clock.Advance(Duration::max());
  EXPECT_EQ(clock.Now(), kNever);
}

TEST(RealClockTest, NeverGoesBack) {
  const RealClock clock;
  const Instant first = clock.Now();
  EXPECT_GE(clock.Now(), first);
}

}  // namespace
}  // namespace tensorferry
