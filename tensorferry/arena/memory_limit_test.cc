#include "tensorferry/arena/memory_limit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace tensorferry::arena {
namespace {

constexpr uint64_t kSmall = 8 << 20;  // less than any machine has

class MemoryLimitTest : public testing::Test {
 protected:
  MemoryLimitTest()
      : root_(std::filesystem::path(testing::TempDir()) /
              ("memory_limit_" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  ~MemoryLimitTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  MemoryLimit Find() {
    return FindMemoryLimit(
        {.membership = root_ / "membership", .hierarchy = (root_ / "groups").string()});
  }
  std::string Path(const std::string& path) { return (root_ / path).string(); }

  const std::filesystem::path root_;
};

TEST_F(MemoryLimitTest, WithoutGroupsItIsTheMachines) {
  const MemoryLimit limit = Find();
  EXPECT_EQ(limit.source, "the machine's memory");
  EXPECT_GT(limit.bytes, kSmall);
  EXPECT_LT(limit.bytes, uint64_t{1} << 50);
}

TEST_F(MemoryLimitTest, ReadsVersion2) {
  Write("membership", "0::/box/inner\n");
  Write("groups/box/inner/memory.max", "8388608\n");
  EXPECT_EQ(Find().bytes, kSmall);
  EXPECT_EQ(Find().source, Path("groups/box/inner/memory.max"));
}

TEST_F(MemoryLimitTest, AnEnclosingGroupLimitsToo) {
  Write("membership", "0::/box/inner\n");
  Write("groups/box/inner/memory.max", "max\n");
  Write("groups/box/memory.max", "8388608\n");
  EXPECT_EQ(Find().bytes, kSmall);
  Write("groups/memory.max", "4194304\n");
  EXPECT_EQ(Find().bytes, kSmall / 2);
  EXPECT_EQ(Find().source, Path("groups/memory.max"));
}

TEST_F(MemoryLimitTest, ReadsVersion1) {
  Write("membership", "5:cpu,cpuacct:/other\n4:hugetlb,memory:/box\n1:name=systemd:/a:b\n0::/\n");
  Write("groups/memory/box/memory.limit_in_bytes", "8388608\n");
  Write("groups/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(Find().bytes, kSmall);
  EXPECT_EQ(Find().source, Path("groups/memory/box/memory.limit_in_bytes"));
}

TEST_F(MemoryLimitTest, InAContainerTheMountsRootIsTheGroup) {
  Write("membership", "0::/../../elsewhere\n4:memory:/docker/0123\n");
  Write("groups/memory/memory.limit_in_bytes", "8388608\n");
  EXPECT_EQ(Find().bytes, kSmall);
}

TEST_F(MemoryLimitTest, WhatMakesNoSenseDoesNotLimit) {
  Write("membership", "\n:\n0:\nx\n0::relative\n0::/box\n");
  Write("groups/box/memory.max", "lots\n");
  Write("groups/memory.max", "");
  EXPECT_EQ(Find().source, "the machine's memory");
}

}  // namespace
}  // namespace tensorferry::arena
