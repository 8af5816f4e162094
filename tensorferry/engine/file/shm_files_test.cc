#include "tensorferry/engine/file/shm_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tensorferry/base/error.h"
#include "tensorferry/base/temp_dir_testing.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/file/shm_testing.h"
#include "tensorferry/engine/local/local_testing.h"

namespace tensorferry::engine {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::SizeIs;

class ShmFilesTest : public testing::Test {
 protected:
  std::unique_ptr<ShmFiles> Open(ShmFilesOptions options = {.sweep_period = Duration::zero()}) {
    options.sweep.directory = dir_.path();
    auto files = ShmFiles::Open(std::move(options));
    EXPECT_TRUE(files.ok()) << files.status();
    return *std::move(files);
  }
  std::string PathOf(const ShmFile& file) const { return dir_ / file.name(); }

  TempDir dir_;
};

TEST_F(ShmFilesTest, AFileHoldsTheBytesAndGoesWithItsOwner) {
  const auto files = Open();
  for (const size_t nbytes : {size_t{0}, size_t{1}, size_t{4096}, size_t{5 << 20}}) {
    const std::string bytes = Pattern(nbytes);
    auto file = files->Write(AsBytes(bytes));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->nbytes(), nbytes);
    EXPECT_EQ(BytesOf(PathOf(*file)), bytes);
    struct stat info;
    ASSERT_EQ(::stat(PathOf(*file).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode, mode_t{S_IFREG | 0600});
    ShmFile moved = *std::move(file);
    EXPECT_TRUE(Exists(PathOf(moved)));
  }
  EXPECT_THAT(FilesIn(dir_.path()), IsEmpty());
  EXPECT_EQ(files->stats().written, 4u);
}

TEST_F(ShmFilesTest, NamesAreStocksWithARandomPart) {
  const auto files = Open();
  const auto one = files->Write({}), two = files->Write({});
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_THAT(one->name(),
              MatchesRegex(StrCat("smg-tokenspeed-", ::getpid(), "-[0-9]{19}-0-[0-9a-f]{16}")));
  EXPECT_THAT(two->name(),
              MatchesRegex(StrCat("smg-tokenspeed-", ::getpid(), "-[0-9]{19}-1-[0-9a-f]{16}")));
  EXPECT_NE(one->name().substr(one->name().size() - 16),
            two->name().substr(two->name().size() - 16));
}

TEST_F(ShmFilesTest, AssigningRemovesTheFormerFile) {
  const auto files = Open();
  auto one = files->Write(AsBytes("one")), two = files->Write(AsBytes("two"));
  ASSERT_TRUE(one.ok() && two.ok());
  *one = *std::move(two);
  EXPECT_THAT(FilesIn(dir_.path()), SizeIs(1));
  EXPECT_EQ(BytesOf(PathOf(*one)), "two");
}

TEST_F(ShmFilesTest, AFileOutlivesTheObjectThatMadeIt) {
  auto files = Open();
  auto file = files->Write(AsBytes("bytes"));
  files.reset();
  ASSERT_TRUE(Exists(PathOf(*file)));
  file = absl::CancelledError();
  EXPECT_THAT(FilesIn(dir_.path()), IsEmpty());
}

TEST_F(ShmFilesTest, WhatTookItsNameIsNotRemoved) {
  const auto files = Open();
  auto file = files->Write(AsBytes("ours"));
  const std::string path = PathOf(*file);
  ASSERT_EQ(::unlink(path.c_str()), 0);  // as a worker does
  PutFile(path, "another's");
  file = absl::CancelledError();
  EXPECT_EQ(BytesOf(path), "another's");
}

TEST_F(ShmFilesTest, NoSweepTakesALiveFile) {
  const auto files = Open();
  const auto file = files->Write(AsBytes("bytes"));
  const auto others = Open();
  EXPECT_TRUE(Exists(PathOf(*file)));
  EXPECT_EQ(others->stats().swept, 0u);
}

// A reader's opening of the file, and its closing, leave the lock alone.
TEST_F(ShmFilesTest, AReaderDoesNotTakeTheLockAway) {
  const auto files = Open();
  const auto file = files->Write(AsBytes("bytes"));
  {
    const UniqueFd reader(::open(PathOf(*file).c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(reader);
    EXPECT_EQ(SweepShmFiles({.directory = dir_.path()}).removed, 0u);
  }
  EXPECT_EQ(SweepShmFiles({.directory = dir_.path()}).removed, 0u);
}

TEST_F(ShmFilesTest, ASweepBetweenCreationAndLockCostsOneMoreAttempt) {
  int created = 0;
  const auto files = Open({.sweep_period = Duration::zero(), .created = [&](const std::string&) {
                             if (++created <= 3) SweepShmFiles({.directory = dir_.path()});
                           }});
  const auto file = files->Write(AsBytes("bytes"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(created, 4);
  EXPECT_EQ(BytesOf(PathOf(*file)), "bytes");
  EXPECT_THAT(FilesIn(dir_.path()), SizeIs(1));
}

TEST_F(ShmFilesTest, ASweepThatHoldsTheLockCostsOneMoreAttempt) {
  UniqueFd sweeper;
  const auto files =
      Open({.sweep_period = Duration::zero(), .created = [&](const std::string& name) {
              if (!sweeper) sweeper = LockFile(dir_ / name);
            }});
  const auto file = files->Write(AsBytes("bytes"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(BytesOf(PathOf(*file)), "bytes");
  EXPECT_THAT(FilesIn(dir_.path()), SizeIs(1));
}

TEST_F(ShmFilesTest, SomethingThatRemovesEveryFileIsAnErrorAndNotALoop) {
  const auto files =
      Open({.sweep_period = Duration::zero(),
            .created = [&](const std::string& name) { ::unlink((dir_ / name).c_str()); }});
  EXPECT_EQ(ReasonOf(files->Write(AsBytes("bytes")).status()), Reason::kSystem);
}

TEST_F(ShmFilesTest, WritersAndSweepersTogetherLoseNothing) {
  const auto files = Open({.sweep_period = milliseconds(1)});
  std::atomic<bool> stop = false;
  std::thread sweeper([&] {
    while (!stop) SweepShmFiles({.directory = dir_.path()});
  });
  std::vector<std::thread> writers;
  std::atomic<int> lost = 0;
  for (int t = 0; t < 3; ++t) {
    writers.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        const auto file = files->Write(AsBytes("bytes"));
        if (!file.ok() || BytesOf(PathOf(*file)) != "bytes") ++lost;
      }
    });
  }
  for (std::thread& t : writers) t.join();
  stop = true;
  sweeper.join();
  EXPECT_EQ(lost, 0);
  EXPECT_THAT(FilesIn(dir_.path()), IsEmpty());
}

TEST_F(ShmFilesTest, OpenRemovesWhatTheDeadLeft) {
  PutFile(dir_ / MakeShmName({.pid = 1}), "12345");
  std::string said;
  const auto files = Open({.sweep_period = Duration::zero(),
                           .log = [&](LogLevel, std::string_view line) { said = line; }});
  EXPECT_THAT(FilesIn(dir_.path()), IsEmpty());
  EXPECT_EQ(files->stats().swept, 1u);
  EXPECT_EQ(files->stats().swept_bytes, 5u);
  EXPECT_THAT(said, HasSubstr("removed 1 files of 5 bytes"));
}

TEST_F(ShmFilesTest, AndSoDoesItsThreadFromTimeToTime) {
  const auto files = Open({.sweep_period = milliseconds(5)});
  for (uint64_t i = 1; i <= 3; ++i) {
    PutFile(dir_ / MakeShmName({.pid = 1, .random = i}), "1");
    EXPECT_TRUE(Eventually([&] { return files->stats().swept == i; }));
  }
  EXPECT_THAT(FilesIn(dir_.path()), IsEmpty());
}

TEST_F(ShmFilesTest, AThreadThatWaitsForAnHourEndsAtOnce) {
  Open({.sweep_period = std::chrono::hours(1)}).reset();
}

TEST_F(ShmFilesTest, ADirectoryThatIsNotThereIsAnError) {
  const auto files = ShmFiles::Open({.sweep = {.directory = dir_ / "missing"}});
  EXPECT_EQ(ReasonOf(files.status()), Reason::kSystem);
  EXPECT_THAT(std::string(files.status().message()), HasSubstr(dir_ / "missing"));
}

// Runs in a child, so that what it changes of the process goes with it. Forked: no other threads.
int ExitCodeOf(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST_F(ShmFilesTest, AForkedChildRemovesNothing) {
  const auto files = Open();
  auto file = files->Write(AsBytes("bytes"));
  EXPECT_EQ(ExitCodeOf([&] {
              file = absl::CancelledError();
              return 0;
            }),
            0);
  EXPECT_TRUE(Exists(PathOf(*file)));
  EXPECT_EQ(SweepShmFiles({.directory = dir_.path()}).removed, 0u);
}

TEST_F(ShmFilesTest, TheLimitForFilesIsAnErrorAndNotASignal) {
  const auto files = Open();
  EXPECT_EQ(ExitCodeOf([&] {
              const rlimit limit{.rlim_cur = 4096, .rlim_max = 4096};
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
              if (!files->Write(AsBytes(Pattern(4096))).ok()) return 2;
              const auto file = files->Write(AsBytes(Pattern(4097)));
              return ReasonOf(file.status()) == Reason::kNoMemory ? 0 : 3;
            }),
            0);
  EXPECT_THAT(FilesIn(dir_.path()), IsEmpty());
}

// A gateway that is killed with a request under way: verbs write BYTES -> the file's name.
ChildProcess::Handler MakeFileGateway(const std::string& directory) {
  struct State {
    std::unique_ptr<ShmFiles> files;
    std::vector<ShmFile> written;
  };
  auto state = std::make_shared<State>();
  state->files =
      *ShmFiles::Open({.sweep = {.directory = directory}, .sweep_period = Duration::zero()});
  return [state](std::string_view, std::string_view bytes) {
    auto file = state->files->Write(AsBytes(bytes));
    if (!file.ok()) return std::string(ReasonNameOf(file.status()));
    state->written.push_back(*std::move(file));
    return state->written.back().name();
  };
}

TEST_F(ShmFilesTest, AKilledGatewaysFilesGoWithTheNextSweepAndNotBefore) {
  ChildProcess gateway([&] { return MakeFileGateway(dir_.path()); });
  const std::string name = gateway.Ask("write", "bytes");
  EXPECT_EQ(Open()->stats().swept, 0u);
  EXPECT_EQ(BytesOf(dir_ / name), "bytes");
  gateway.Stop();
  EXPECT_EQ(Open()->stats().swept, 0u);
  gateway.Kill();
  EXPECT_EQ(BytesOf(dir_ / name), "bytes");
  EXPECT_EQ(Open()->stats().swept, 1u);
  EXPECT_THAT(FilesIn(dir_.path()), IsEmpty());
}

// A file system of its own, in the test's directory.
class ShmFilesMountTest : public ShmFilesTest {
 protected:
  void Mount(const char* type, const char* options) {
    if (::mount("test", dir_.path().c_str(), type, 0, options) != 0) {
      GTEST_SKIP() << "needs root to mount a " << type << ": NOT tested here";
    }
    mounted_ = true;
  }
  ~ShmFilesMountTest() override {
    if (mounted_) ::umount2(dir_.path().c_str(), MNT_DETACH);
  }
  bool mounted_ = false;
};

TEST_F(ShmFilesMountTest, AFullFileSystemIsAnErrorThatNamesSizeAndSpace) {
  Mount("tmpfs", "size=64k");
  if (!mounted_) return;
  const auto files = Open();
  const auto first = files->Write(AsBytes(Pattern(32 << 10)));
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = files->Write(AsBytes(Pattern(40 << 10)));
  EXPECT_EQ(ReasonOf(second.status()), Reason::kNoMemory);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(StrCat("no room for 40960 bytes in ", dir_.path(),
                               ": 32768 of 65536 bytes are free")));
  EXPECT_THAT(FilesIn(dir_.path()), SizeIs(1));
  EXPECT_TRUE(files->Write(AsBytes(Pattern(32 << 10))).ok());
  EXPECT_EQ(files->stats().failed, 1u);
}

TEST_F(ShmFilesMountTest, AFileSystemThatCannotReserveIsWrittenAllTheSame) {
  Mount("ramfs", "");
  if (!mounted_) return;
  const auto files = Open();
  const std::string bytes = Pattern(100'001);
  const auto file = files->Write(AsBytes(bytes));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(BytesOf(PathOf(*file)), bytes);
}

TEST_F(ShmFilesMountTest, OneThatCouldNotBeWrittenDoesNotSpoilTheNext) {
  Mount("tmpfs", "");
  if (!mounted_) return;
  const auto files = Open();
  ASSERT_EQ(::mount(nullptr, dir_.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
  EXPECT_EQ(ReasonOf(files->Write(AsBytes("bytes")).status()), Reason::kSystem);
  ASSERT_EQ(::mount(nullptr, dir_.path().c_str(), nullptr, MS_REMOUNT, nullptr), 0);
  EXPECT_TRUE(files->Write(AsBytes("bytes")).ok());
}

}  // namespace
}  // namespace tensorferry::engine
