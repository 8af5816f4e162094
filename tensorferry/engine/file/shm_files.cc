#include "tensorferry/engine/file/shm_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry::engine {
namespace {

constexpr int kAttempts = 16;
// The kernel writes at most 2 GiB less a page at a time.
constexpr size_t kPiece = size_t{1} << 30;

uint64_t UnixNanoseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// 0 or an errno. What a file system cannot reserve shows when it is written.
int Reserve(int fd, uint64_t nbytes) {
  if (nbytes == 0) return 0;
  int error = 0;
  do {
    error = ::fallocate(fd, 0, 0, static_cast<off_t>(nbytes)) == 0 ? 0 : errno;
  } while (error == EINTR);
  return error == EOPNOTSUPP || error == ENOSYS ? 0 : error;
}

int WriteAll(int fd, std::span<const std::byte> bytes) {
  size_t written = 0;
  while (written < bytes.size()) {
    const size_t piece = std::min(kPiece, bytes.size() - written);
    const ssize_t n = ::pwrite(fd, bytes.data() + written, piece, static_cast<off_t>(written));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : ENOSPC;
    written += static_cast<size_t>(n);
  }
  return 0;
}

// Beyond it the kernel does not answer with an error but ends the process.
bool IsOverFileSizeLimit(uint64_t nbytes) {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
         nbytes > limit.rlim_cur;
}

}  // namespace

ShmFile::ShmFile(std::shared_ptr<const UniqueFd> directory, std::string name, UniqueFd fd)
    : directory_(std::move(directory)),
      name_(std::move(name)),
      fd_(std::move(fd)),
      owner_(::getpid()) {}

ShmFile& ShmFile::operator=(ShmFile&& other) noexcept {
  if (this == &other) return *this;
  Remove();
  directory_ = std::move(other.directory_);
  name_ = std::move(other.name_);
  nbytes_ = other.nbytes_;
  fd_ = std::move(other.fd_);
  owner_ = other.owner_;
  return *this;
}

void ShmFile::Remove() {
  if (fd_ && owner_ == ::getpid() && LeadsTo(directory_->get(), name_, fd_.get())) {
    (void)::unlinkat(directory_->get(), name_.c_str(), 0);
  }
  fd_.Reset();
}

absl::StatusOr<std::unique_ptr<ShmFiles>> ShmFiles::Open(ShmFilesOptions options) {
  const std::string& path = options.sweep.directory;
  UniqueFd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory) return SystemError(errno, StrCat("opening ", path, " for files to share"));
  std::unique_ptr<ShmFiles> files(new ShmFiles(std::move(options), std::move(directory)));
  files->Sweep();
  if (files->options_.sweep_period > Duration::zero()) {
    files->sweeper_ = std::thread([f = files.get()] { f->SweepPeriodically(); });
  }
  return files;
}

ShmFiles::ShmFiles(ShmFilesOptions options, UniqueFd directory)
    : options_(std::move(options)),
      directory_(std::make_shared<const UniqueFd>(std::move(directory))),
      owner_(::getpid()) {}

ShmFiles::~ShmFiles() {
  if (!sweeper_.joinable()) return;
  if (owner_ != ::getpid()) {  // a forked child has no such thread
    sweeper_.detach();
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(mu_);
    stop_ = true;
  }
  stop_changed_.notify_all();
  sweeper_.join();
}

absl::StatusOr<ShmFile> ShmFiles::Write(std::span<const std::byte> bytes) {
  absl::StatusOr<ShmFile> file = Create();
  if (file.ok()) {
    if (absl::Status s = Fill(*file, bytes); !s.ok()) file = std::move(s);
  }
  ++(file.ok() ? written_ : failed_);
  return file;
}

// Another gateway's sweep may meet the file when it is not locked yet. It removes a file only while
// it has the lock itself, so either the lock cannot be had here, or the name is gone once it is
// had; both mean: again, under another name.
absl::StatusOr<ShmFile> ShmFiles::Create() {
  for (int i = 0; i < kAttempts; ++i) {
    const std::string name = NextName();
    UniqueFd fd(::openat(directory_->get(), name.c_str(),
                         O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd && errno == EEXIST) continue;
    if (!fd) return SystemError(errno, StrCat("creating ", directory(), "/", name));
    ShmFile file(directory_, name, std::move(fd));
    if (options_.created) options_.created(name);
    if (::flock(file.fd_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) continue;
      return SystemError(errno, StrCat("locking ", directory(), "/", name));
    }
    if (LeadsTo(directory_->get(), name, file.fd_.get())) return file;
  }
  return MakeError(Reason::kSystem, StrCat("no new file could be had in ", directory(), " in ",
                                           kAttempts, " attempts: something removes them at once"));
}

absl::Status ShmFiles::Fill(ShmFile& file, std::span<const std::byte> bytes) const {
  if (IsOverFileSizeLimit(bytes.size())) return Failure(EFBIG, bytes.size());
  int error = Reserve(file.fd_.get(), bytes.size());
  if (error == 0) error = WriteAll(file.fd_.get(), bytes);
  if (error != 0) return Failure(error, bytes.size());
  file.nbytes_ = bytes.size();
  return absl::OkStatus();
}

absl::Status ShmFiles::Failure(int error, uint64_t nbytes) const {
  if (error == EFBIG) {
    return MakeError(Reason::kNoMemory,
                     StrCat("a file of ", nbytes, " bytes in ", directory(),
                            " is over the limit for files of this process (ulimit -f)"));
  }
  struct statvfs space {};
  if (error != ENOSPC || ::fstatvfs(directory_->get(), &space) != 0) {
    return SystemError(error, StrCat("writing ", nbytes, " bytes to a file in ", directory()));
  }
  return MakeError(
      Reason::kNoMemory,
      StrCat("no room for ", nbytes, " bytes in ", directory(), ": ",
             uint64_t{space.f_bavail} * space.f_frsize, " of ",
             uint64_t{space.f_blocks} * space.f_frsize,
             " bytes are free; make it larger (mount -o remount,size=..., docker --shm-size)"));
}

std::string ShmFiles::NextName() {
  const std::lock_guard<std::mutex> lock(mu_);
  return MakeShmName({.pid = static_cast<uint32_t>(::getpid()),
                      .unix_ns = UnixNanoseconds(),
                      .counter = counter_++,
                      .random = random_.Next64()});
}

void ShmFiles::Sweep() {
  const SweepResult result = SweepShmFiles(options_.sweep);
  if (result.removed == 0) return;
  swept_ += result.removed;
  swept_bytes_ += result.bytes;
  Log(options_.log, LogLevel::kWarning,
      StrCat("removed ", result.removed, " files of ", result.bytes, " bytes from ", directory(),
             " that gateways left when they died"));
}

void ShmFiles::SweepPeriodically() {
  std::unique_lock<std::mutex> lock(mu_);
  while (!stop_changed_.wait_for(lock, options_.sweep_period, [this] { return stop_; })) {
    lock.unlock();
    Sweep();
    lock.lock();
  }
}

ShmFilesStats ShmFiles::stats() const {
  return {.written = written_, .failed = failed_, .swept = swept_, .swept_bytes = swept_bytes_};
}

}  // namespace tensorferry::engine
