#include "tensorferry/worker/budget.h"

#include <gtest/gtest.h>

namespace tensorferry {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(PullBudget, IsHalfOfWhatRemains) {
  EXPECT_EQ(PullBudget(seconds(10)), Duration(seconds(5)));
  EXPECT_EQ(PullBudget(milliseconds(3)), Duration(milliseconds(3)) / 2);
}

TEST(PullBudget, IsNeverLongerThanTheLimit) {
  EXPECT_EQ(PullBudget(seconds(1000)), Duration(seconds(60)));
  EXPECT_EQ(PullBudget(std::nullopt), Duration(seconds(60)));
  EXPECT_EQ(PullBudget(Duration::max(), seconds(7)), Duration(seconds(7)));
  EXPECT_EQ(PullBudget(std::nullopt, seconds(7)), Duration(seconds(7)));
}

TEST(PullBudget, IsNeverNegative) {
  EXPECT_EQ(PullBudget(Duration::zero()), Duration::zero());
  EXPECT_EQ(PullBudget(seconds(-3)), Duration::zero());
  EXPECT_EQ(PullBudget(seconds(3), seconds(-1)), Duration::zero());
  EXPECT_EQ(PullBudget(std::nullopt, seconds(-1)), Duration::zero());
}

}  // namespace
}  // namespace tensorferry
