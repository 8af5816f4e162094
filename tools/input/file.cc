#include "tools/input/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "tensorferry/base/error.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/base/text.h"

namespace tensorferry::tools {

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  // Non-blocking, so that a FIFO is refused below and not waited for.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return SystemError(errno, path);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return SystemError(errno, path);
  if (!S_ISREG(info.st_mode)) {
    return MakeError(Reason::kBadInput,
                     StrCat(path, " is not a regular file; save its content to one"));
  }
  const size_t size = static_cast<size_t>(info.st_size);
  std::span<const std::byte> bytes;
  if (size > 0) {
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (data == MAP_FAILED) return SystemError(errno, StrCat(path, ": mapping ", size, " bytes"));
    bytes = {static_cast<const std::byte*>(data), size};
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(bytes));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace tensorferry::tools
