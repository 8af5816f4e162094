// The memory of an arena: an anonymous file (memfd) without a name, so that a killed process leaves
// nothing behind, sealed so that nobody can shrink it under a reader's feet.
//
//   auto mapping = Mapping::Create({.bytes = 1 << 30});
//   std::memcpy(mapping->data() + offset, ...);
//   SendFd(mapping->fd());            // the receiver can map it for reading only
//
// Pages are touched in the background after Create (first touch costs several times a copy);
// WaitPrefaulted() waits for that. Not inherited over fork (MADV_DONTFORK).
// Thread-safety: const calls from any thread. Ownership: unmaps and closes when destroyed, after the
// background thread was joined.
#ifndef TENSORFERRY_ARENA_MAPPING_H_
#define TENSORFERRY_ARENA_MAPPING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tensorferry/base/log.h"

namespace tensorferry::arena {

struct MappingOptions {
  uint64_t bytes = 0;  // rounded up to whole pages; 0 is refused
  std::string name = "tensorferry";  // seen in /proc/PID/maps only
  bool prefault = true;
  // Readers map it read-only (F_SEAL_FUTURE_WRITE); without it, they may write.
  bool read_only_to_others = true;
  LogSink log;
};

class Mapping {
 public:
  // kNoMemory names the limit that was hit (cgroup, RLIMIT_AS, memfd) and the setting to lower.
  static absl::StatusOr<std::unique_ptr<Mapping>> Create(const MappingOptions& options);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const;
  uint64_t size() const;
  int fd() const;
  bool prefaulted() const;
  void WaitPrefaulted() const;

 private:
  class Impl;
  explicit Mapping(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tensorferry::arena

#endif  // TENSORFERRY_ARENA_MAPPING_H_
