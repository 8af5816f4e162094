#include "tensorferry/engine/local/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry::engine {

absl::StatusOr<SharedMemory> SharedMemory::Map(int fd, uint64_t bytes, Access access,
                                               std::string_view what) {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return MakeError(Reason::kProtocol, StrCat("the gateway's ", what,
                                               " is not a memfd sealed"
                                               " against shrinking and growing"));
  }
  struct stat info;
  if (::fstat(fd, &info) != 0) return SystemError(errno, StrCat("fstat ", what));
  if (bytes == 0 || static_cast<uint64_t>(info.st_size) < bytes) {
    return MakeError(Reason::kProtocol, StrCat("the gateway's ", what, " has ", info.st_size,
                                               " bytes, not the ", bytes, " that it announced"));
  }
  const int protection = access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  void* data = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    return SystemError(errno, StrCat("map ", bytes, " bytes of the gateway's ", what,
                                     " (limits: RLIMIT_AS, vm.max_map_count)"));
  }
  SharedMemory memory(static_cast<std::byte*>(data), bytes);
  if (::madvise(data, bytes, MADV_DONTFORK) != 0) return SystemError(errno, "madvise");
  return memory;
}

SharedMemory::SharedMemory(std::byte* data, uint64_t bytes)
    : data_(data), bytes_(bytes), owner_(::getpid()) {}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr && owner_ == ::getpid()) ::munmap(data_, bytes_);
}

}  // namespace tensorferry::engine
