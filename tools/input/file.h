// A file's bytes, mapped.
//
//   auto file = MappedFile::Open("weights.safetensors");
//   Parse((*file)->bytes());
//
// Only regular files. Whoever cuts the file short while it is mapped ends the process that reads it
// (as with any mapped file).
// Thread-safety: const calls from any thread.
// Ownership: spans are valid while the object lives.
#ifndef TENSORFERRY_TOOLS_INPUT_FILE_H_
#define TENSORFERRY_TOOLS_INPUT_FILE_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace tensorferry::tools {

class MappedFile {
 public:
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes_;
};

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_INPUT_FILE_H_
