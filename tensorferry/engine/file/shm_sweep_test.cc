#include "tensorferry/engine/file/shm_sweep.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "tensorferry/base/temp_dir_testing.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/file/shm_testing.h"

namespace tensorferry::engine {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr seconds kOld{61};

class ShmSweepTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(proc_ / "7"); }

  SweepResult Sweep() const {
    return SweepShmFiles({.directory = dir_.path(), .proc = proc_.path()});
  }
  std::string Put(const std::string& name, seconds age = seconds(0)) const {
    PutFile(dir_ / name, "12345");
    Age(dir_ / name, age);
    return dir_ / name;
  }

  TempDir dir_;
  TempDir proc_;  // in which only process 7 lives
};

std::string Ours(uint32_t pid, uint64_t random = 5) {
  return MakeShmName({.pid = pid, .unix_ns = 1, .counter = 0, .random = random});
}

TEST_F(ShmSweepTest, OurFilesAreJudgedByTheirLockWhateverThePid) {
  // A live pid, a dead one, pid 1 as in a container, and our own as after a restart in one.
  for (const uint32_t pid : {7u, 8u, 1u, static_cast<uint32_t>(::getpid())}) {
    const std::string path = Put(Ours(pid));
    {
      const UniqueFd lock = LockFile(path);
      EXPECT_EQ(Sweep().removed, 0u) << pid;
      EXPECT_TRUE(Exists(path)) << pid;
    }
    const SweepResult swept = Sweep();
    EXPECT_EQ(swept.removed, 1u) << pid;
    EXPECT_EQ(swept.bytes, 5u) << pid;
    EXPECT_FALSE(Exists(path)) << pid;
  }
}

TEST_F(ShmSweepTest, AReaderThatHasAFileOpenDoesNotKeepIt) {
  const std::string path = Put(Ours(8));
  const UniqueFd reader(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(Sweep().removed, 1u);
}

TEST_F(ShmSweepTest, StockFilesAreRemovedWhenTheyAreOldAndTheirProcessIsGone) {
  Put("smg-tokenspeed-8-1-0", kOld);
  Put("smg-tokenspeed-8-1-1");
  Put("smg-tokenspeed-7-1-0", kOld);
  Put("smg-tokenspeed-7-1-1");
  EXPECT_EQ(Sweep().removed, 1u);
  EXPECT_THAT(FilesIn(dir_.path()),
              ElementsAre("smg-tokenspeed-7-1-0", "smg-tokenspeed-7-1-1", "smg-tokenspeed-8-1-1"));
}

TEST_F(ShmSweepTest, AStockFileThatSomebodyLocksStays) {
  const std::string path = Put("smg-tokenspeed-8-1-0", kOld);
  const UniqueFd lock = LockFile(path);
  EXPECT_EQ(Sweep().removed, 0u);
}

TEST_F(ShmSweepTest, StaleProbesAreRemovedAlsoWithOurPidOrALiveOne) {
  Put(StrCat("smg-tokenspeed-probe-", ::getpid()), kOld);
  Put("smg-tokenspeed-probe-7", kOld);
  Put("smg-tokenspeed-probe-8", kOld);
  Put("smg-tokenspeed-probe-9");  // perhaps being made just now
  EXPECT_EQ(Sweep().removed, 3u);
  EXPECT_THAT(FilesIn(dir_.path()), ElementsAre("smg-tokenspeed-probe-9"));
}

TEST_F(ShmSweepTest, WhatIsNotAGatewaysIsLeftAlone) {
  Put("psm_1234", kOld);
  Put("smg-tokenspeed-", kOld);
  Put("smg-tokenspeed-notes.txt", kOld);
  std::filesystem::create_directory(dir_ / Ours(8, 1));
  std::filesystem::create_symlink(dir_ / "psm_1234", dir_ / Ours(8, 2));
  ASSERT_EQ(::mkfifo((dir_ / Ours(8, 3)).c_str(), 0600), 0);
  EXPECT_EQ(Sweep().removed, 0u);
  EXPECT_EQ(FilesIn(dir_.path()).size(), 6u);
}

TEST_F(ShmSweepTest, FilesOfOtherUsersAreLeftAlone) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to make another user's file";
  const std::string path = Put(Ours(8));
  ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
  EXPECT_EQ(Sweep().removed, 0u);
  EXPECT_TRUE(Exists(path));
}

TEST_F(ShmSweepTest, ManyMaySweepAtOnceAndEachFileCountsOnce) {
  constexpr uint64_t kFiles = 200;
  for (uint64_t i = 0; i < kFiles; ++i) Put(Ours(8, i));
  SweepResult results[4];
  std::vector<std::thread> threads;
  for (SweepResult& result : results) threads.emplace_back([&] { result = Sweep(); });
  for (std::thread& t : threads) t.join();
  EXPECT_THAT(FilesIn(dir_.path()), IsEmpty());
  uint64_t removed = 0;
  for (const SweepResult& r : results) removed += r.removed;
  EXPECT_EQ(removed, kFiles);
}

TEST_F(ShmSweepTest, ADirectoryThatIsNotThereIsNoTrouble) {
  EXPECT_EQ(SweepShmFiles({.directory = dir_ / "missing"}).removed, 0u);
}

}  // namespace
}  // namespace tensorferry::engine
