#include "tools/input/file.h"

#include <sys/mman.h>

#include <cerrno>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tools/file_io.h"

namespace tensorferry::tools {

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  const absl::StatusOr<OpenFile> file = OpenForReading(path);
  if (!file.ok()) return file.status();
  const size_t size = static_cast<size_t>(file->size);
  std::span<const std::byte> bytes;
  if (size > 0) {
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file->fd.get(), 0);
    if (data == MAP_FAILED) return SystemError(errno, StrCat(path, ": mapping ", size, " bytes"));
    bytes = {static_cast<const std::byte*>(data), size};
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(bytes));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace tensorferry::tools
