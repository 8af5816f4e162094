#include "tensorferry/arena/mapping.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <string>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry::arena {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

std::unique_ptr<Mapping> Create(const MappingOptions& options) {
  absl::StatusOr<std::unique_ptr<Mapping>> mapping = Mapping::Create(options);
  EXPECT_TRUE(mapping.ok()) << mapping.status();
  return mapping.ok() ? *std::move(mapping) : nullptr;
}

// A forked process that runs `body` and ends; Answer() is what it returned, once it has.
class Child {
 public:
  explicit Child(const std::function<std::string(int socket)>& body) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    socket_.Reset(ends[0]);
    pid_ = ::fork();
    if (pid_ == 0) {
      const std::string answer = body(ends[1]);
      (void)!::write(ends[1], answer.data(), answer.size());
      ::_exit(0);
    }
    ::close(ends[1]);
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  pid_t pid() const { return pid_; }
  int socket() const { return socket_.get(); }
  std::string Answer() {
    std::string answer;
    char buffer[256];
    for (ssize_t n = 0; (n = ::read(socket_.get(), buffer, sizeof(buffer))) > 0;) {
      answer.append(buffer, static_cast<size_t>(n));
    }
    return answer;
  }

 private:
  UniqueFd socket_;
  pid_t pid_ = -1;
};

void SendFd(int socket, int fd) {
  char byte = 0;
  iovec data = {.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
  ASSERT_EQ(::sendmsg(socket, &message, 0), 1);
}

UniqueFd ReceiveFd(int socket) {
  char byte = 0;
  iovec data = {.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (::recvmsg(socket, &message, 0) != 1 || CMSG_FIRSTHDR(&message) == nullptr) return {};
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
  return UniqueFd(fd);
}

// "" when all that another process may not do is refused, and it can read.
std::string TryToHarm(int fd, size_t size) {
  const std::string path = StrCat("/proc/self/fd/", fd);
  const UniqueFd reopened(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  for (const int target : {fd, reopened.get()}) {
    if (::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, target, 0) != MAP_FAILED) {
      return "mapped for writing";
    }
    if (::ftruncate(target, 0) == 0) return "shrunk";
    if (::ftruncate(target, static_cast<off_t>(2 * size)) == 0) return "grown";
    if (::pwrite(target, "x", 1, 0) >= 0) return "written";
    if (::fallocate(target, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0) {
      return "punched a hole";
    }
    if (::fcntl(target, F_ADD_SEALS, F_SEAL_WRITE) == 0) return "sealed further";
  }
  void* view = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (view == MAP_FAILED) return "cannot map for reading";
  if (::mprotect(view, size, PROT_READ | PROT_WRITE) == 0) return "made writable";
  if (std::memcmp(view, "tensor", 6) != 0) return "other bytes";
  return "";
}

TEST(MappingTest, IsZeroedAndWritable) {
  const auto mapping = Create({.bytes = 100'000});
  ASSERT_NE(mapping, nullptr);
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  EXPECT_EQ(mapping->size() % page, 0u);
  EXPECT_GE(mapping->size(), 100'000u);
  EXPECT_LT(mapping->size(), 100'000u + page);
  EXPECT_EQ(mapping->data()[99'999], std::byte{0});
  std::memset(mapping->data(), 7, mapping->size());
}

TEST(MappingTest, RefusesZeroBytes) {
  const absl::Status status = Mapping::Create({.bytes = 0}).status();
  EXPECT_EQ(ReasonOf(status), Reason::kBadOption);
  EXPECT_THAT(std::string(status.message()), HasSubstr("arena_bytes is 0"));
}

// ---- Other processes ----

TEST(MappingTest, OthersCanOnlyRead) {
  Child other([](int socket) -> std::string {
    const UniqueFd fd = ReceiveFd(socket);
    return fd ? StrCat("tried: ", TryToHarm(fd.get(), kMiB)) : "received nothing";
  });
  const auto mapping = Create({.bytes = kMiB});
  ASSERT_NE(mapping, nullptr);
  std::memcpy(mapping->data(), "tensor", 6);
  SendFd(other.socket(), mapping->fd());
  EXPECT_EQ(other.Answer(), "tried: ");
  EXPECT_EQ(std::memcmp(mapping->data(), "tensor", 6), 0);
}

TEST(MappingTest, OthersCanWriteWhereAllowedButNotResize) {
  Child other([](int socket) -> std::string {
    const UniqueFd fd = ReceiveFd(socket);
    void* view = ::mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (view == MAP_FAILED) return "cannot map for writing";
    std::memcpy(view, "claimed", 7);
    if (::ftruncate(fd.get(), 0) == 0) return "shrunk";
    return "written";
  });
  const auto mapping = Create({.bytes = kMiB, .read_only_to_others = false});
  ASSERT_NE(mapping, nullptr);
  SendFd(other.socket(), mapping->fd());
  EXPECT_EQ(other.Answer(), "written");
  EXPECT_EQ(std::memcmp(mapping->data(), "claimed", 7), 0);
}

TEST(MappingTest, AForkedChildHasNoneOfIt) {
  const auto mapping = Create({.bytes = kMiB, .prefault = false});
  ASSERT_NE(mapping, nullptr);
  Child child([&](int) -> std::string {
    unsigned char resident[kMiB / 4096];
    const int mapped = ::mincore(mapping->data(), mapping->size(), resident);
    return mapped != 0 && errno == ENOMEM ? "unmapped" : "mapped";
  });
  EXPECT_EQ(child.Answer(), "unmapped");
}

TEST(MappingTest, AKilledProcessLeavesNothing) {
  Child child([](int socket) -> std::string {
    const auto mapping = Mapping::Create({.bytes = kMiB, .name = "killed", .prefault = false});
    const int fd = mapping.ok() ? (*mapping)->fd() : -1;
    (void)!::write(socket, &fd, sizeof(fd));
    ::pause();
    return "";
  });
  int fd = -1;
  ASSERT_EQ(::read(child.socket(), &fd, sizeof(fd)), static_cast<ssize_t>(sizeof(fd)));
  const std::string path = StrCat("/proc/", child.pid(), "/fd/", fd);
  char target[256] = {};
  ASSERT_GT(::readlink(path.c_str(), target, sizeof(target) - 1), 0);
  EXPECT_STREQ(target, "/memfd:killed (deleted)");
  struct stat file = {};
  ASSERT_EQ(::stat(path.c_str(), &file), 0);
  EXPECT_EQ(file.st_size, static_cast<off_t>(kMiB));
  // No directory holds it, so it goes with the last process that has it open.
  EXPECT_EQ(file.st_nlink, 0u);
  ASSERT_EQ(::kill(child.pid(), SIGKILL), 0);
  EXPECT_EQ(child.Answer(), "");
}

// ---- Limits ----

// What Create says in a process of its own with this limit.
std::string CreateLimited(__rlimit_resource_t resource, uint64_t limit, uint64_t bytes) {
  Child child([&](int) -> std::string {
    const rlimit both = {.rlim_cur = limit, .rlim_max = limit};
    if (::setrlimit(resource, &both) != 0) return "setrlimit failed";
    const absl::Status status = Mapping::Create({.bytes = bytes, .prefault = false}).status();
    return StrCat(ReasonNameOf(status), ": ", StdView(status.message()));
  });
  return child.Answer();
}

uint64_t AddressSpaceInUse() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

TEST(MappingLimitTest, MoreThanThereIs) {
  for (const uint64_t bytes : {uint64_t{1} << 50, uint64_t{1} << 62, UINT64_MAX}) {
    const absl::Status status =
        Mapping::Create({.bytes = bytes, .setting = "landing_bytes"}).status();
    EXPECT_EQ(ReasonOf(status), Reason::kNoMemory);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(StrCat("landing_bytes is ", bytes)), HasSubstr("more than"),
                      HasSubstr("lower landing_bytes")));
  }
}

TEST(MappingLimitTest, FileSizeIsAnErrorAndNotASignal) {
  EXPECT_THAT(CreateLimited(RLIMIT_FSIZE, kMiB, kMiB + 1),
              AllOf(HasSubstr("no_memory: "), HasSubstr("arena_bytes is 1048577"),
                    HasSubstr("RLIMIT_FSIZE of 1048576"), HasSubstr("ulimit -f")));
  EXPECT_EQ(CreateLimited(RLIMIT_FSIZE, kMiB, kMiB), "ok: ");
}

TEST(MappingLimitTest, AddressSpace) {
  const uint64_t limit = AddressSpaceInUse() + 64 * kMiB;
  EXPECT_THAT(
      CreateLimited(RLIMIT_AS, limit, 256 * kMiB),
      AllOf(HasSubstr("no_memory: "), HasSubstr("268435456 bytes"),
            HasSubstr(StrCat("RLIMIT_AS, ulimit -v, is ", limit)), HasSubstr("lower arena_bytes")));
}

TEST(MappingLimitTest, FileDescriptors) {
  EXPECT_THAT(CreateLimited(RLIMIT_NOFILE, 3, kMiB),
              AllOf(HasSubstr("no_memory: "), HasSubstr("all 3 file descriptors"),
                    HasSubstr("RLIMIT_NOFILE")));
}

// ---- Pre-faulting ----

long MinorFaults() {
  rusage usage = {};
  EXPECT_EQ(::getrusage(RUSAGE_THREAD, &usage), 0);
  return usage.ru_minflt;
}

// Overwrites the mapping by the kernel, so that a sanitizer's own memory does not fault.
long FaultsOfWritingAll(const Mapping& mapping) {
  const UniqueFd zero(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  const long before = MinorFaults();
  EXPECT_EQ(::syscall(SYS_read, zero.get(), mapping.data(), mapping.size()),
            static_cast<long>(mapping.size()));
  return MinorFaults() - before;
}

TEST(MappingTest, PrefaultedPagesDoNotFault) {
  const auto mapping = Create({.bytes = 32 * kMiB});
  ASSERT_NE(mapping, nullptr);
  mapping->WaitPrefaulted();
  EXPECT_TRUE(mapping->prefaulted());
  EXPECT_LT(FaultsOfWritingAll(*mapping), 16);
}

// Shows that the test above measures something.
TEST(MappingTest, WithoutPrefaultPagesFault) {
  const auto mapping = Create({.bytes = 32 * kMiB, .prefault = false});
  ASSERT_NE(mapping, nullptr);
  mapping->WaitPrefaulted();
  EXPECT_FALSE(mapping->prefaulted());
  EXPECT_GE(FaultsOfWritingAll(*mapping), 16);
}

TEST(MappingTest, IsWritableWhileItIsPrefaulted) {
  const auto mapping = Create({.bytes = 64 * kMiB});
  ASSERT_NE(mapping, nullptr);
  for (uint64_t at = 0; at < mapping->size(); at += 4096) mapping->data()[at] = std::byte{1};
  mapping->WaitPrefaulted();
  uint64_t kept = 0;
  for (uint64_t at = 0; at < mapping->size(); at += 4096) {
    kept += mapping->data()[at] == std::byte{1};
  }
  EXPECT_EQ(kept, mapping->size() / 4096);
}

TEST(MappingTest, ItsEndStopsPrefaulting) {
  absl::StatusOr<std::unique_ptr<Mapping>> created = Mapping::Create({.bytes = 4096 * kMiB});
  if (ReasonOf(created.status()) == Reason::kNoMemory) GTEST_SKIP() << created.status();
  ASSERT_TRUE(created.ok()) << created.status();
  std::unique_ptr<Mapping> mapping = *std::move(created);
  const UniqueFd file(::fcntl(mapping->fd(), F_DUPFD_CLOEXEC, 0));
  const auto size = static_cast<int64_t>(mapping->size());
  const bool too_late = mapping->prefaulted();
  mapping.reset();
  struct stat left = {};
  ASSERT_EQ(::fstat(file.get(), &left), 0);
  EXPECT_TRUE(too_late || left.st_blocks * 512 < size) << left.st_blocks * 512;
}

}  // namespace
}  // namespace tensorferry::arena
