// How much memory this process could ever have: what its control groups and the machine allow.
//
//   MemoryLimit limit = FindMemoryLimit({});
//   if (bytes > limit.bytes) ... absl::StrCat(limit.source, " is ", limit.bytes)
//
// Reads files, and keeps nothing.
// Thread-safety: a pure function of the system's state.
#ifndef TENSORFERRY_ARENA_MEMORY_LIMIT_H_
#define TENSORFERRY_ARENA_MEMORY_LIMIT_H_

#include <cstdint>
#include <string>

#include "tensorferry/base/export.h"

namespace tensorferry::arena {

struct MemoryLimit {
  uint64_t bytes = INT64_MAX;
  // "/sys/fs/cgroup/box/memory.max", "the machine's memory"
  std::string source = "the largest size of a file";
};

// Where to look, for tests.
struct MemoryLimitFiles {
  std::string membership = "/proc/self/cgroup";
  std::string hierarchy = "/sys/fs/cgroup";
};

// The lowest of the machine's memory (with swap) and the limits of the process' control group and
// all that enclose it: version 2's memory.max, version 1's memory.limit_in_bytes. What cannot be
// read does not limit.
TENSORFERRY_EXPORT MemoryLimit FindMemoryLimit(const MemoryLimitFiles& files);

}  // namespace tensorferry::arena

#endif  // TENSORFERRY_ARENA_MEMORY_LIMIT_H_
