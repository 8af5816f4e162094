#include "tensorferry/arena/mapping.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tensorferry/base/error.h"

namespace tensorferry::arena {
namespace {

TEST(MappingTest, IsZeroedAndWritable) {
  absl::StatusOr<std::unique_ptr<Mapping>> mapping = Mapping::Create({.bytes = 100'000});
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  EXPECT_EQ((*mapping)->size() % 4096, 0u);
  EXPECT_GE((*mapping)->size(), 100'000u);
  (*mapping)->WaitPrefaulted();
  EXPECT_TRUE((*mapping)->prefaulted());
  EXPECT_EQ((*mapping)->data()[99'999], std::byte{0});
  std::memset((*mapping)->data(), 7, (*mapping)->size());
}

TEST(MappingTest, RefusesNothing) {
  EXPECT_EQ(ReasonOf(Mapping::Create({.bytes = 0}).status()), Reason::kBadOption);
}

}  // namespace
}  // namespace tensorferry::arena
