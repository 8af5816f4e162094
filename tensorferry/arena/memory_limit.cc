#include "tensorferry/arena/memory_limit.h"

#include <sys/sysinfo.h>

#include <fstream>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tensorferry/base/text.h"

namespace tensorferry::arena {
namespace {

// Takes `file`'s number when it is lower. "max" and absent files do not parse.
void Lower(const std::string& file, MemoryLimit& limit) {
  std::string text;
  uint64_t bytes = 0;
  if (!(std::ifstream(file) >> text) || !absl::SimpleAtoi(text, &bytes)) return;
  if (bytes < limit.bytes) limit = {.bytes = bytes, .source = file};
}

// `path` is the group's as the process sees it. In a container it may lie outside of what is
// mounted; its enclosing groups are tried up to the mount's root, where a container finds its own
// limit.
void LowerByGroups(const std::string& root, std::string_view path, std::string_view file,
                   MemoryLimit& limit) {
  while (true) {
    while (!path.empty() && path.back() == '/') path.remove_suffix(1);
    Lower(StrCat(root, path, "/", file), limit);
    if (path.empty()) return;
    path = path.substr(0, path.rfind('/') + 1);
  }
}

}  // namespace

MemoryLimit FindMemoryLimit(const MemoryLimitFiles& files) {
  MemoryLimit limit;
  struct sysinfo machine = {};
  if (::sysinfo(&machine) == 0) {
    limit = {.bytes = (uint64_t{machine.totalram} + machine.totalswap) * machine.mem_unit,
             .source = "the machine's memory"};
  }
  // Lines are "number:controllers:path"; version 2's is "0::path".
  std::ifstream membership(files.membership);
  for (std::string line; std::getline(membership, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || parts[2].empty() || parts[2][0] != '/') continue;
    if (parts[1].empty()) {
      LowerByGroups(files.hierarchy, parts[2], "memory.max", limit);
      continue;
    }
    for (const absl::string_view controller : absl::StrSplit(parts[1], ',')) {
      if (controller != "memory") continue;
      LowerByGroups(StrCat(files.hierarchy, "/memory"), parts[2], "memory.limit_in_bytes", limit);
    }
  }
  return limit;
}

}  // namespace tensorferry::arena
