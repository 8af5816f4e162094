#include "tools/bytes_text.h"

#include <gtest/gtest.h>

namespace tensorferry::tools {
namespace {

TEST(BytesText, WholeNumbersHaveNoPoint) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(1000), "1000 B");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(65536), "64 KiB");
  EXPECT_EQ(BytesText(3 << 19), "1.5 MiB");
  EXPECT_EQ(BytesText(uint64_t{32} << 20), "32 MiB");
  EXPECT_EQ(BytesText(1 << 30), "1 GiB");
  EXPECT_EQ(BytesText(uint64_t{3} << 29), "1.5 GiB");
  EXPECT_EQ(BytesText(UINT64_MAX), "16 EiB");
}

}  // namespace
}  // namespace tensorferry::tools
