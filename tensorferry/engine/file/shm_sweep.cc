#include "tensorferry/engine/file/shm_sweep.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <memory>

#include "tensorferry/base/fd.h"
#include "tensorferry/base/text.h"

namespace tensorferry::engine {
namespace {

struct CloseDir {
  void operator()(DIR* dir) const { ::closedir(dir); }
};

bool IsOlderThan(const struct stat& info, Duration age) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const auto nanoseconds = [](const timespec& t) {
    return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
  };
  return nanoseconds(now) - nanoseconds(info.st_mtim) >= age;
}

// In doubt it lives.
bool IsAlive(const std::string& proc, uint32_t pid) {
  struct stat info;
  return ::stat(StrCat(proc, "/", pid).c_str(), &info) == 0 || errno != ENOENT;
}

bool HasLostItsGateway(const SweepOptions& options, const ShmName& name, const struct stat& info) {
  switch (name.kind) {
    case ShmName::Kind::kOurs:
      return true;  // the lock was free
    case ShmName::Kind::kStock:
      return IsOlderThan(info, options.stock_age) && !IsAlive(options.proc, name.pid);
    case ShmName::Kind::kProbe:
      return IsOlderThan(info, options.stock_age);
    case ShmName::Kind::kOther:
      break;
  }
  return false;
}

void SweepOne(const SweepOptions& options, int directory, const std::string& text,
              SweepResult* result) {
  const ShmName name = ParseShmName(text);
  if (name.kind == ShmName::Kind::kOther) return;
  const UniqueFd fd(
      ::openat(directory, text.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info;
  if (!fd || ::fstat(fd.get(), &info) != 0) return;
  if (!S_ISREG(info.st_mode) || info.st_uid != ::geteuid()) return;
  // Kept until the name is gone: a gateway that is just creating this file sees that it lost it.
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return;
  if (!HasLostItsGateway(options, name, info) || !LeadsTo(directory, text, fd.get())) return;
  if (::unlinkat(directory, text.c_str(), 0) != 0) return;
  ++result->removed;
  result->bytes += static_cast<uint64_t>(info.st_size);
}

}  // namespace

bool LeadsTo(int directory, const std::string& name, int fd) {
  struct stat there, here;
  return ::fstatat(directory, name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
         ::fstat(fd, &here) == 0 && there.st_dev == here.st_dev && there.st_ino == here.st_ino;
}

SweepResult SweepShmFiles(const SweepOptions& options) {
  SweepResult result;
  const std::unique_ptr<DIR, CloseDir> dir(::opendir(options.directory.c_str()));
  if (!dir) return result;
  while (const dirent* entry = ::readdir(dir.get())) {
    SweepOne(options, ::dirfd(dir.get()), entry->d_name, &result);
  }
  return result;
}

}  // namespace tensorferry::engine
