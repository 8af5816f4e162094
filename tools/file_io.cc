#include "tools/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry::tools {
namespace {

absl::Status WriteAll(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError(errno, "writing");
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

// What is there and no regular file (/dev/stdout, a pipe) is written to, never replaced.
bool IsSpecial(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

}  // namespace

absl::StatusOr<OpenFile> OpenForReading(const std::string& path) {
  // Non-blocking, so that a FIFO is refused below and not waited for.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return SystemError(errno, path);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return SystemError(errno, path);
  if (!S_ISREG(info.st_mode)) {
    return MakeError(Reason::kBadInput,
                     StrCat(path, " is not a regular file; save its content to one"));
  }
  return OpenFile{.fd = std::move(fd), .size = static_cast<uint64_t>(info.st_size)};
}

absl::Status ReadInto(const OpenFile& file, std::span<std::byte> to) {
  while (!to.empty()) {
    const ssize_t n = ::read(file.fd.get(), to.data(), to.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError(errno, "reading");
    if (n == 0) return MakeError(Reason::kBadInput, "the file became shorter while it was read");
    to = to.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  const absl::StatusOr<OpenFile> file = OpenForReading(path);
  if (!file.ok()) return file.status();
  std::string text(file->size, '\0');
  if (absl::Status s = ReadInto(*file, std::as_writable_bytes(std::span(text))); !s.ok()) {
    return Annotate(s, path);
  }
  return text;
}

absl::Status WriteFile(const std::string& path, std::span<const std::span<const std::byte>> parts) {
  const bool in_place = IsSpecial(path);
  const std::string target = in_place ? path : StrCat(path, ".partial");
  const UniqueFd fd(::open(target.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd) return SystemError(errno, target);
  for (const std::span<const std::byte> part : parts) {
    if (absl::Status status = WriteAll(fd.get(), part); !status.ok()) {
      if (!in_place) (void)::unlink(target.c_str());
      return Annotate(status, path);
    }
  }
  if (!in_place && ::rename(target.c_str(), path.c_str()) != 0) {
    const int error = errno;
    (void)::unlink(target.c_str());
    return SystemError(error, path);
  }
  return absl::OkStatus();
}

}  // namespace tensorferry::tools
