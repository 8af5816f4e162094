// Whole files, read and written without a length that surprises.
//
//   auto file = OpenForReading("raw.bin");                      // and file->size
//   auto status = ReadInto(*file, staged.bytes());
//
// Thread-safety: pure functions but for the files.
#ifndef TENSORFERRY_TOOLS_FILE_IO_H_
#define TENSORFERRY_TOOLS_FILE_IO_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "tensorferry/base/fd.h"

namespace tensorferry::tools {

struct OpenFile {
  UniqueFd fd;
  uint64_t size = 0;
};

// Only regular files. Errors name the path.
absl::StatusOr<OpenFile> OpenForReading(const std::string& path);
// kBadInput when the file ends before `to` is full.
absl::Status ReadInto(const OpenFile& file, std::span<std::byte> to);

// All of it.
absl::StatusOr<std::string> ReadText(const std::string& path);

// The file gets its name when it is complete.
absl::Status WriteFile(const std::string& path, std::span<const std::span<const std::byte>> parts);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_FILE_IO_H_
