#include "tensorferry/arena/allocator.h"

#include <gtest/gtest.h>

#include <vector>

namespace tensorferry::arena {
namespace {

TEST(AllocatorTest, RoundsUpToGranules) {
  Allocator a(1024 + 63);
  EXPECT_EQ(a.capacity(), 1024u);
  EXPECT_EQ(a.Allocate(1), 0u);
  EXPECT_EQ(a.used_bytes(), 64u);
  EXPECT_EQ(a.Allocate(64), 64u);
  EXPECT_EQ(a.Allocate(65), 128u);
  EXPECT_EQ(a.used_bytes(), 256u);
  EXPECT_EQ(a.largest_free(), 768u);
}

TEST(AllocatorTest, ZeroBytesTakeAPlaceOfTheirOwn) {
  Allocator a(128);
  EXPECT_EQ(a.Allocate(0), 0u);
  EXPECT_EQ(a.Allocate(0), 64u);
  EXPECT_EQ(a.Allocate(0), std::nullopt);
}

TEST(AllocatorTest, GivesOutTheWholeRangeInOnePiece) {
  Allocator a(4096);
  EXPECT_EQ(a.Allocate(4096), 0u);
  EXPECT_EQ(a.largest_free(), 0u);
  EXPECT_EQ(a.Allocate(1), std::nullopt);
  a.Free(0);
  EXPECT_EQ(a.used_bytes(), 0u);
  EXPECT_EQ(a.largest_free(), 4096u);
}

TEST(AllocatorTest, RefusesSizesThatRoundingWouldOverflow) {
  Allocator a(4096);
  EXPECT_EQ(a.Allocate(UINT64_MAX), std::nullopt);
  EXPECT_EQ(a.Allocate(UINT64_MAX - 62), std::nullopt);
  EXPECT_EQ(a.Allocate(4097), std::nullopt);
  EXPECT_EQ(a.largest_free(), 4096u);
}

TEST(AllocatorTest, WithoutCapacityHasNothing) {
  Allocator a(63);
  EXPECT_EQ(a.capacity(), 0u);
  EXPECT_EQ(a.largest_free(), 0u);
  EXPECT_EQ(a.Allocate(0), std::nullopt);
}

// Taken pieces of 1, 3, 1, 2, 1 granules, of which those of 3 and 2 are freed again.
class AllocatorHolesTest : public testing::Test {
 protected:
  AllocatorHolesTest() : a_(8 * 64) {
    for (const uint64_t granules : {1, 3, 1, 2, 1}) at_.push_back(*a_.Allocate(granules * 64));
    a_.Free(at_[1]);
    a_.Free(at_[3]);
  }

  Allocator a_;
  std::vector<uint64_t> at_;
};

TEST_F(AllocatorHolesTest, TakesTheSmallestPieceThatFits) {
  EXPECT_EQ(a_.Allocate(2 * 64), at_[3]);
  EXPECT_EQ(a_.Allocate(2 * 64), at_[1]);
  EXPECT_EQ(a_.largest_free(), 64u);
}

TEST_F(AllocatorHolesTest, NeverMergesOverATakenPiece) {
  EXPECT_EQ(a_.largest_free(), 3 * 64u);
  EXPECT_EQ(a_.Allocate(4 * 64), std::nullopt);
}

TEST_F(AllocatorHolesTest, MergesWithBothNeighbours) {
  a_.Free(at_[2]);
  EXPECT_EQ(a_.largest_free(), 6 * 64u);
  EXPECT_EQ(a_.Allocate(6 * 64), at_[1]);
}

TEST_F(AllocatorHolesTest, MergesWithTheNeighbourBefore) {
  a_.Free(at_[4]);
  EXPECT_EQ(a_.largest_free(), 3 * 64u);
  a_.Free(at_[2]);
  EXPECT_EQ(a_.largest_free(), 7 * 64u);
}

TEST_F(AllocatorHolesTest, MergesWithTheNeighbourAfter) {
  a_.Free(at_[0]);
  EXPECT_EQ(a_.largest_free(), 4 * 64u);
  EXPECT_EQ(a_.Allocate(4 * 64), 0u);
}

TEST_F(AllocatorHolesTest, PrefersTheLowestOfEquals) {
  a_.Free(at_[0]);  // now 4 at 0, and 2 at at_[3]
  EXPECT_EQ(a_.Allocate(2 * 64), at_[3]);
  EXPECT_EQ(a_.Allocate(2 * 64), 0u);
  a_.Free(at_[3]);  // 2 at 128, 2 at at_[3]
  EXPECT_EQ(a_.Allocate(64), 128u);
}

}  // namespace
}  // namespace tensorferry::arena
