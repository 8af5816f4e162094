#include "tensorferry/base/spin.h"

#include <gtest/gtest.h>

namespace tensorferry {
namespace {

TEST(Spin, EndsAfterAWhile) {
  ManualClock clock;
  Spin spin;
  const Instant began = clock.Now();
  int times = 0;
  while (spin.Again(
      began, [&] { clock.Advance(Spin::kLongest / 10); }, clock))
    ++times;
  EXPECT_EQ(times, 10);
  EXPECT_TRUE(spin.Again(
      clock.Now(), [] {}, clock))
      << "the next event is waited for as ever";
}

TEST(Spin, PausesWhenTheProcessorWasTakenAway) {
  ManualClock clock;
  Spin spin;
  int yields = 0;
  const auto yield_to_others = [&] {
    ++yields;
    clock.Advance(Spin::kTakenAway);
  };
  EXPECT_TRUE(spin.Again(clock.Now(), yield_to_others, clock)) << "the event may have come";
  EXPECT_FALSE(spin.Again(clock.Now(), yield_to_others, clock));
  clock.Advance(Spin::kPause - Duration(1));
  EXPECT_FALSE(spin.Again(clock.Now(), yield_to_others, clock));
  EXPECT_EQ(yields, 1);
  clock.Advance(Duration(1));
  EXPECT_TRUE(spin.Again(clock.Now(), yield_to_others, clock));
  EXPECT_EQ(yields, 2);
}

TEST(Spin, TheOtherEndsTurnIsNoReasonToPause) {
  ManualClock clock;
  Spin spin;
  for (int i = 0; i < 100; ++i) {
    const Instant began = clock.Now();
    EXPECT_TRUE(spin.Again(
        began, [&] { clock.Advance(Spin::kTakenAway - Duration(1)); }, clock));
  }
}

}  // namespace
}  // namespace tensorferry
