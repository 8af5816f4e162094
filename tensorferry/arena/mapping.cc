#include "tensorferry/arena/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <system_error>
#include <utility>

#include "tensorferry/arena/memory_limit.h"
#include "tensorferry/arena/prefault.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

// Not in every C library's headers.
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace tensorferry::arena {
namespace {

uint64_t Limit(__rlimit_resource_t resource) {
  struct rlimit limit = {};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  return limit.rlim_cur;
}

// The bytes rounded up to whole pages, if nothing known forbids so many. These limits are looked up
// beforehand: to run into them is death by OOM killer or by SIGXFSZ, not an error.
absl::StatusOr<uint64_t> CheckedSize(const MappingOptions& options) {
  const std::string wanted = StrCat(options.setting, " is ", options.bytes);
  if (options.bytes == 0) {
    return MakeError(Reason::kBadOption, StrCat(wanted, "; it takes at least one byte"));
  }
  const MemoryLimit memory = FindMemoryLimit({});
  if (options.bytes > memory.bytes) {
    return MakeError(Reason::kNoMemory, StrCat(wanted, " bytes, more than ", memory.source, " of ",
                                               memory.bytes, "; lower ", options.setting));
  }
  const uint64_t file_limit = Limit(RLIMIT_FSIZE);
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t size = (options.bytes + page - 1) / page * page;
  if (size > file_limit) {
    return MakeError(Reason::kNoMemory,
                     StrCat(wanted, " bytes, more than RLIMIT_FSIZE of ", file_limit, "; lower ",
                            options.setting, " or raise the limit (ulimit -f)"));
  }
  return size;
}

absl::StatusOr<UniqueFd> NewMemfd(const std::string& name) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  // Some systems refuse memory that could be executed; old ones do not know the flag.
  UniqueFd fd(::memfd_create(name.c_str(), kFlags | MFD_NOEXEC_SEAL));
  if (!fd && errno == EINVAL) fd.Reset(::memfd_create(name.c_str(), kFlags));
  if (fd) return fd;
  const int error = errno;
  if (error == EMFILE) {
    return SystemError(error, StrCat("memfd_create: all ", Limit(RLIMIT_NOFILE),
                                     " file descriptors that RLIMIT_NOFILE allows (ulimit -n) are "
                                     "in use; raise it"));
  }
  return SystemError(error, "memfd_create");
}

absl::StatusOr<std::span<std::byte>> MapShared(int fd, uint64_t size,
                                               const MappingOptions& options) {
  void* at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at != MAP_FAILED) return std::span(static_cast<std::byte*>(at), size);
  const int error = errno;
  std::string limits;
  if (error == ENOMEM && Limit(RLIMIT_AS) != UINT64_MAX) {
    limits = StrCat(" (RLIMIT_AS, ulimit -v, is ", Limit(RLIMIT_AS), ")");
  }
  if (error == EAGAIN)
    limits = StrCat(" (RLIMIT_MEMLOCK, ulimit -l, is ", Limit(RLIMIT_MEMLOCK), ")");
  return SystemError(error, StrCat("mapping ", size, " bytes", limits, "; lower ", options.setting,
                                   " or raise the limit"));
}

absl::Status Seal(int fd, bool read_only_to_others) {
  int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (read_only_to_others) seals |= F_SEAL_FUTURE_WRITE;
  if (::fcntl(fd, F_ADD_SEALS, seals) == 0) return absl::OkStatus();
  return SystemError(errno, "sealing a memfd (needs Linux 5.1)");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Mapping>> Mapping::Create(const MappingOptions& options) {
  const absl::StatusOr<uint64_t> size = CheckedSize(options);
  if (!size.ok()) return size.status();
  absl::StatusOr<UniqueFd> fd = NewMemfd(options.name);
  if (!fd.ok()) return fd.status();
  if (::ftruncate(fd->get(), static_cast<off_t>(*size)) != 0) {
    return SystemError(errno,
                       StrCat("sizing a memfd to ", *size, " bytes; lower ", options.setting));
  }
  const absl::StatusOr<std::span<std::byte>> memory = MapShared(fd->get(), *size, options);
  if (!memory.ok()) return memory.status();

  std::unique_ptr<Mapping> mapping(new Mapping(*std::move(fd), *memory));
  // After mmap: F_SEAL_FUTURE_WRITE lets only the mappings write that exist.
  if (absl::Status s = Seal(mapping->fd(), options.read_only_to_others); !s.ok()) return s;
  if (::madvise(mapping->data(), mapping->size(), MADV_DONTFORK) != 0) {
    return SystemError(errno, "madvise(MADV_DONTFORK)");
  }
  if (options.prefault) {
    if (absl::Status s = mapping->StartPrefault(options.log); !s.ok()) return s;
  }
  return mapping;
}

Mapping::Mapping(UniqueFd fd, std::span<std::byte> memory) : fd_(std::move(fd)), memory_(memory) {}

Mapping::~Mapping() {
  if (prefault_.joinable()) {
    prefault_.request_stop();
    prefault_.join();
  }
  ::munmap(memory_.data(), memory_.size());
}

bool Mapping::prefaulted() const {
  std::lock_guard lock(mutex_);
  return prefaulting_ == Prefaulting::kDone;
}

void Mapping::WaitPrefaulted() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return prefaulting_ != Prefaulting::kRunning; });
}

absl::Status Mapping::StartPrefault(const LogSink& log) {
  prefaulting_ = Prefaulting::kRunning;
  try {
    prefault_ = std::jthread([this, log](const std::stop_token& stop) { RunPrefault(stop, log); });
  } catch (const std::system_error& e) {
    return SystemError(e.code().value(), "starting the thread that touches the arena's pages");
  }
  return absl::OkStatus();
}

void Mapping::RunPrefault(const std::stop_token& stop, const LogSink& log) {
  int error = Prefault(memory_, stop, PopulateByKernel);
  if (error == EINVAL) error = Prefault(memory_, stop, PopulateByTouch);
  if (error != 0 && error != ECANCELED) {
    Log(log, LogLevel::kWarning,
        StrCat("touching the arena's ", size(), " bytes beforehand: ", std::strerror(error),
               "; first uses of its pages will be slow"));
  }
  {
    std::lock_guard lock(mutex_);
    prefaulting_ = error == 0 ? Prefaulting::kDone : Prefaulting::kFailed;
  }
  changed_.notify_all();
}

}  // namespace tensorferry::arena
