#include "tensorferry/engine/file/file_pull_engine.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <limits>

#include "tensorferry/base/error.h"
#include "tensorferry/base/temp_dir_testing.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/engine_testing.h"
#include "tensorferry/engine/file/shm_files.h"
#include "tensorferry/engine/file/shm_testing.h"

namespace tensorferry::engine {
namespace {

using testing::AnyOf;
using testing::Eq;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint32_t kNobody = 65534;
constexpr char kName[] = "smg-tokenspeed-7-1700000000000000000-0";

class FilePullTest : public testing::Test {
 protected:
  FilePullOptions Options() {
    return {.directory = dir_.path(), .log = [this](LogLevel level, std::string_view line) {
              EXPECT_EQ(level, LogLevel::kWarning);
              warnings_.emplace_back(line);
            }};
  }
  void UseEngine(FilePullOptions options) { engine_ = CreateFilePullEngine(std::move(options)); }

  static wire::Descriptor DescriptorOf(std::string name, uint64_t nbytes, uint64_t offset = 0) {
    wire::Descriptor d;
    d.nbytes = nbytes;
    d.ways.emplace_back(wire::FileWay{.name = std::move(name), .offset = offset});
    return d;
  }

  // What a puller does: drives the op, and acknowledges when the bytes are there.
  absl::StatusOr<std::string> Pull(const wire::Descriptor& d,
                                   const std::function<void()>& between = nullptr) {
    std::string into(d.nbytes, '\0');
    const auto op = engine_->Start(
        {.descriptor = &d, .length = d.nbytes, .into = std::as_writable_bytes(std::span(into))});
    if (between) {
      EXPECT_EQ(op->Step(), PullOp::Progress::kMoved);  // opened
      between();
    }
    const absl::StatusOr<Landed> landed = DriveOp(*op);
    if (!landed.ok()) return landed.status();
    EXPECT_EQ(static_cast<const void*>(landed->bytes.data()), into.data());
    EXPECT_EQ(landed->bytes.size(), into.size());
    op->Acknowledge();
    return into;
  }
  absl::StatusOr<std::string> Pull(const std::string& name, uint64_t nbytes, uint64_t offset = 0) {
    return Pull(DescriptorOf(name, nbytes, offset));
  }

  // Asked for, the file is refused and stays.
  void ExpectRefused(Reason reason, const std::string& text, uint64_t nbytes = 5,
                     uint64_t offset = 0) {
    // Only as much memory as is needed for the refusal: nbytes may be absurd.
    const wire::Descriptor d = DescriptorOf(kName, nbytes, offset);
    std::byte unused;
    const auto op =
        engine_->Start({.descriptor = &d, .length = nbytes, .into = std::span(&unused, nbytes)});
    const absl::Status status = DriveOp(*op).status();
    EXPECT_EQ(ReasonOf(status), reason) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
    EXPECT_TRUE(Exists(Path()));
    EXPECT_THAT(warnings_, IsEmpty());
  }
  std::string Path() const { return dir_ / kName; }

  TempDir dir_;
  std::vector<std::string> warnings_;
  std::unique_ptr<PullEngine> engine_ = CreateFilePullEngine(Options());
};

TEST_F(FilePullTest, ReadsAStockFileAndRemovesIt) {
  for (const size_t nbytes : {size_t{0}, size_t{1}, size_t{4 << 20}, size_t{(9 << 20) + 3}}) {
    for (const char* slashes : {"", "/", "///"}) {
      const std::string bytes = Pattern(nbytes);
      PutFile(Path(), bytes);
      const auto got = Pull(StrCat(slashes, kName), nbytes);
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_TRUE(*got == bytes) << nbytes;
      EXPECT_FALSE(Exists(Path()));
    }
  }
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(FilePullTest, ReadsOursAndItsGatewayTakesNoNotice) {
  const auto files = *ShmFiles::Open({.sweep = {.directory = dir_.path()}});
  auto file = files->Write(AsBytes("bytes"));
  EXPECT_EQ(*Pull(file->name(), 5), "bytes");
  EXPECT_THAT(FilesIn(dir_.path()), IsEmpty());
  EXPECT_EQ(ReasonOf(Pull(file->name(), 5).status()), Reason::kLeaseEnded);
  file = absl::CancelledError();
}

TEST_F(FilePullTest, ReadsAPieceFromTheMiddle) {
  PutFile(Path(), "0123456789");
  EXPECT_EQ(*Pull(kName, 4, 3), "3456");
  EXPECT_FALSE(Exists(Path()));
}

TEST_F(FilePullTest, LeavesTheFileWhenToldTo) {
  FilePullOptions options = Options();
  options.unlink = false;
  UseEngine(options);
  PutFile(Path(), "bytes");
  EXPECT_EQ(*Pull(kName, 5), "bytes");
  EXPECT_EQ(*Pull(kName, 5), "bytes");
  EXPECT_TRUE(Exists(Path()));
}

TEST_F(FilePullTest, OnlyNamesThatAGatewayMakesAreOpened) {
  PutFile(dir_ / "secret", "bytes");
  std::filesystem::create_directory(dir_ / "smg-tokenspeed-1");
  PutFile(dir_ / "smg-tokenspeed-1/x", "bytes");
  const std::string names[] = {"",
                               "/",
                               ".",
                               "..",
                               "secret",
                               "/secret",
                               "smg-tokenspeed-1/x",
                               "smg-tokenspeed-1/../secret",
                               "../" + dir_.path() + "/secret",
                               dir_ / "secret",
                               std::string("smg-tokenspeed-1\0x", 18)};
  for (const std::string& name : names) {
    EXPECT_EQ(ReasonOf(engine_->CanTry(DescriptorOf(name, 5))), Reason::kBadDescriptor) << name;
    EXPECT_EQ(ReasonOf(Pull(name, 5).status()), Reason::kBadDescriptor) << name;
  }
  EXPECT_EQ(BytesOf(dir_ / "secret"), "bytes");
  EXPECT_TRUE(engine_->CanTry(DescriptorOf(kName, 5)).ok());
}

TEST_F(FilePullTest, ADescriptorWithoutAFileIsNotItsBusiness) {
  wire::Descriptor d;
  d.ways.emplace_back(wire::LocalWay{});
  EXPECT_EQ(ReasonOf(engine_->CanTry(d)), Reason::kNoCommonWay);
  EXPECT_EQ(ReasonOf(Pull(d).status()), Reason::kNoCommonWay);
}

TEST_F(FilePullTest, AMissingFileHasEnded) {
  EXPECT_EQ(ReasonOf(Pull(kName, 5).status()), Reason::kLeaseEnded);
}

TEST_F(FilePullTest, ASymbolicLinkIsNotFollowed) {
  PutFile(dir_ / "target", "bytes");
  std::filesystem::create_symlink(dir_ / "target", Path());
  ExpectRefused(Reason::kNotAllowed, "symbolic link");
  EXPECT_EQ(BytesOf(dir_ / "target"), "bytes");
}

TEST_F(FilePullTest, AFifoDoesNotKeepAnybodyWaiting) {
  ASSERT_EQ(::mkfifo(Path().c_str(), 0600), 0);
  ExpectRefused(Reason::kNotAllowed, "not a regular file");
}

TEST_F(FilePullTest, ADirectoryIsRefused) {
  std::filesystem::create_directory(Path());
  ExpectRefused(Reason::kNotAllowed, "not a regular file");
}

TEST_F(FilePullTest, ASocketIsRefused) {
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(Path().size(), sizeof(address.sun_path));
  Path().copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ExpectRefused(Reason::kNotAllowed, "not a regular file");
}

TEST_F(FilePullTest, AFileWithASecondNameIsRefused) {
  PutFile(dir_ / "precious", "bytes");
  std::filesystem::create_hard_link(dir_ / "precious", Path());
  ExpectRefused(Reason::kNotAllowed, "has 2 names");
}

TEST_F(FilePullTest, SizesAreCheckedBeforeAByteIsRead) {
  PutFile(Path(), "bytes");
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  const std::pair<uint64_t, uint64_t> wrong[] = {
      {6, 0},    {5, 1},       {1, 5}, {0, 6}, {uint64_t{1} << 40, 0}, {5, uint64_t{1} << 63},
      {5, kMax}, {5, kMax - 4}};
  for (const auto& [nbytes, offset] : wrong) {
    ExpectRefused(Reason::kOutOfRange, "has 5 bytes", nbytes, offset);
  }
  EXPECT_EQ(*Pull(kName, 0, 5), "");
}

TEST_F(FilePullTest, AFileThatIsShortenedMeanwhileIsAnErrorAndStays) {
  PutFile(Path(), Pattern(9 << 20));
  const wire::Descriptor d = DescriptorOf(kName, 9 << 20);
  const auto got = Pull(d, [&] { ASSERT_EQ(::truncate(Path().c_str(), 5 << 20), 0); });
  EXPECT_EQ(ReasonOf(got.status()), Reason::kOutOfRange);
  EXPECT_THAT(std::string(got.status().message()), HasSubstr("shortened"));
  EXPECT_TRUE(Exists(Path()));
}

TEST_F(FilePullTest, AnotherFileOfThatNameIsNotRemoved) {
  PutFile(Path(), "bytes");
  const wire::Descriptor d = DescriptorOf(kName, 5);
  const auto got = Pull(d, [&] {
    ASSERT_EQ(::unlink(Path().c_str()), 0);
    PutFile(Path(), "other");
  });
  EXPECT_EQ(*got, "bytes");
  EXPECT_EQ(BytesOf(Path()), "other");
}

TEST_F(FilePullTest, AFileThatItsGatewayRemovedMeanwhileIsReadToTheEnd) {
  PutFile(Path(), Pattern(9 << 20));
  const wire::Descriptor d = DescriptorOf(kName, 9 << 20);
  const auto got = Pull(d, [&] { ASSERT_EQ(::unlink(Path().c_str()), 0); });
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE(*got == Pattern(9 << 20));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(FilePullTest, NothingIsRemovedBeforeTheBytesWereFoundGood) {
  PutFile(Path(), "bytes");
  const wire::Descriptor d = DescriptorOf(kName, 5);
  std::string into(5, '\0');
  {
    const auto op = engine_->Start(
        {.descriptor = &d, .length = 5, .into = std::as_writable_bytes(std::span(into))});
    ASSERT_TRUE(DriveOp(*op).ok());
  }
  EXPECT_TRUE(Exists(Path()));
}

TEST_F(FilePullTest, AStepReadsAPieceSoThatOthersGetTheirTurn) {
  PutFile(Path(), Pattern(9 << 20));
  const wire::Descriptor d = DescriptorOf(kName, 9 << 20);
  std::string into(9 << 20, '\0');
  const auto op = engine_->Start(
      {.descriptor = &d, .length = into.size(), .into = std::as_writable_bytes(std::span(into))});
  int steps = 1;
  while (op->Step() == PullOp::Progress::kMoved) ++steps;
  EXPECT_EQ(steps, 4);  // open, 4 MiB, 4 MiB, the rest
  EXPECT_TRUE(op->TakeResult().ok());
}

TEST_F(FilePullTest, TheDeadlineEndsIt) {
  PutFile(Path(), Pattern(9 << 20));
  const wire::Descriptor d = DescriptorOf(kName, 9 << 20);
  std::string into(9 << 20, '\0');
  const auto op = engine_->Start({.descriptor = &d,
                                  .length = into.size(),
                                  .into = std::as_writable_bytes(std::span(into)),
                                  .deadline = RealClock().Now()});
  EXPECT_EQ(ReasonOf(DriveOp(*op).status()), Reason::kTimedOut);
  EXPECT_TRUE(Exists(Path()));
}

TEST_F(FilePullTest, MemoryOfAnotherSizeIsRefused) {
  PutFile(Path(), "bytes");
  const wire::Descriptor d = DescriptorOf(kName, 5);
  std::string into(4, '\0');
  const auto op = engine_->Start(
      {.descriptor = &d, .length = 5, .into = std::as_writable_bytes(std::span(into))});
  EXPECT_EQ(ReasonOf(DriveOp(*op).status()), Reason::kSizeMismatch);
}

// 2 GiB less a page is what one read brings. The file is sparse: it costs no memory here, but the
// landing memory does.
TEST_F(FilePullTest, LongReadsBeyondTwoGigabytes) {
  constexpr uint64_t kBytes = (uint64_t{2} << 30) + (5 << 20);
  PutFile(Path(), "");
  ASSERT_EQ(::truncate(Path().c_str(), kBytes), 0);
  {
    const UniqueFd fd(::open(Path().c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_EQ(::pwrite(fd.get(), "end", 3, kBytes - 3), 3);
  }
  const auto got = Pull(kName, kBytes);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE(got->ends_with("end"));
  EXPECT_FALSE(Exists(Path()));
}

TEST_F(FilePullTest, RootReadsOthersFilesOnlyWhenAllowedTo) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to make another user's file";
  PutFile(Path(), "bytes");
  ASSERT_EQ(::chown(Path().c_str(), kNobody, kNobody), 0);
  ExpectRefused(Reason::kUidMismatch, "belongs to uid 65534");
  FilePullOptions options = Options();
  options.allowed_uids = {1, kNobody};
  UseEngine(options);
  EXPECT_EQ(*Pull(kName, 5), "bytes");
  EXPECT_FALSE(Exists(Path()));
}

// Runs in a child as another user; gives what it returns.
int AsNobody(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgroups(0, nullptr) != 0 || ::setresgid(kNobody, kNobody, kNobody) != 0 ||
        ::setresuid(kNobody, kNobody, kNobody) != 0) {
      ::_exit(100);
    }
    ::_exit(body());
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(FilePullTest, AFileThatMayNotBeReadSaysWhose) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  PutFile(Path(), "bytes");
  ASSERT_EQ(::chmod(Path().c_str(), 0600), 0);
  ASSERT_EQ(::chmod(dir_.path().c_str(), 01777), 0);
  EXPECT_EQ(AsNobody([&] {
              const absl::Status status = Pull(kName, 5).status();
              return ReasonOf(status) == Reason::kUidMismatch ? 0 : 1;
            }),
            0);
}

// As with a gateway and a worker of two users: the sticky bit lets nobody remove another's file.
TEST_F(FilePullTest, AFileThatCannotBeRemovedIsAWarning) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  PutFile(Path(), "bytes");
  ASSERT_EQ(::chmod(Path().c_str(), 0644), 0);
  ASSERT_EQ(::chmod(dir_.path().c_str(), 01777), 0);
  FilePullOptions options = Options();
  options.allowed_uids = {0};
  UseEngine(options);
  EXPECT_EQ(AsNobody([&] {
              const auto got = Pull(kName, 5);
              if (!got.ok() || *got != "bytes") return 1;
              if (warnings_.size() != 1) return 2;
              return warnings_[0].find("cannot be removed") != std::string::npos ? 0 : 3;
            }),
            0);
  EXPECT_TRUE(Exists(Path()));
}

}  // namespace
}  // namespace tensorferry::engine
