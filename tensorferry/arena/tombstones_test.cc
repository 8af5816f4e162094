#include "tensorferry/arena/tombstones.h"

#include <gtest/gtest.h>

namespace tensorferry::arena {
namespace {

using std::chrono::seconds;

constexpr Instant kStart = Instant(std::chrono::hours(1));

TEST(TombstonesTest, AreWorthWhatWasAwaited) {
  Tombstones dead(seconds(10), 100);
  dead.Add(-1, 2);
  EXPECT_FALSE(dead.Take(1));
  EXPECT_TRUE(dead.Take(-1));
  EXPECT_TRUE(dead.Take(-1));
  EXPECT_FALSE(dead.Take(-1));
  EXPECT_EQ(dead.size(), 0u);
}

TEST(TombstonesTest, SeveralOfAKeyAddUp) {
  Tombstones dead(seconds(10), 100);
  dead.Add(1, 1);
  dead.Add(1, 1);
  EXPECT_TRUE(dead.Take(1));
  EXPECT_TRUE(dead.Take(1));
  EXPECT_FALSE(dead.Take(1));
}

TEST(TombstonesTest, AgeFromTheFirstAdvance) {
  Tombstones dead(seconds(10), 100);
  dead.Add(1, 5);
  dead.Advance(kStart);
  dead.Add(2, 5);
  dead.Advance(kStart + seconds(9));
  EXPECT_TRUE(dead.Take(1));
  dead.Advance(kStart + seconds(10));
  EXPECT_FALSE(dead.Take(1));
  dead.Advance(kStart + seconds(18));
  EXPECT_TRUE(dead.Take(2));
  dead.Advance(kStart + seconds(19));
  EXPECT_FALSE(dead.Take(2));
}

TEST(TombstonesTest, LastForEverIfTold) {
  Tombstones dead(Duration::max(), 100);
  dead.Add(1, 1);
  dead.Advance(kStart);
  dead.Advance(kNever - Duration(1));
  EXPECT_TRUE(dead.Take(1));
}

TEST(TombstonesTest, TheOldestMakeRoom) {
  Tombstones dead(seconds(10), 3);
  for (int64_t key = 0; key < 5; ++key) dead.Add(key, 1);
  EXPECT_EQ(dead.size(), 3u);
  EXPECT_FALSE(dead.Take(0));
  EXPECT_FALSE(dead.Take(1));
  for (int64_t key = 2; key < 5; ++key) EXPECT_TRUE(dead.Take(key));
}

TEST(TombstonesTest, ATakenOneLeavesRoomAtOnce) {
  Tombstones dead(seconds(10), 2);
  dead.Add(1, 1);
  dead.Add(2, 1);
  EXPECT_TRUE(dead.Take(2));
  dead.Add(3, 1);
  EXPECT_TRUE(dead.Take(1));
  EXPECT_TRUE(dead.Take(3));
}

TEST(TombstonesTest, CanBeOff) {
  Tombstones dead(seconds(10), 0);
  dead.Add(1, 1);
  EXPECT_FALSE(dead.Take(1));
}

}  // namespace
}  // namespace tensorferry::arena
