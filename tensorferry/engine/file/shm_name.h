// Names of the files that SMG's gateways and workers share under /dev/shm.
//
//   ShmName name = ParseShmName("smg-tokenspeed-7-1700000000000000000-0");    // kStock, pid 7
//   std::string ours = MakeShmName({.pid = 7, .unix_ns = ns, .counter = 0, .random = r});
//   absl::StatusOr<std::string> wanted = CheckShmName(handle.name());         // the reader's rules
//
// A stock gateway writes PREFIX<pid>-<unix time in ns>-<counter>, and PREFIXprobe-<pid> to see
// whether it may write at all. Ours end in 16 random digits more, so that names can be guessed by
// nobody and never meet.
// Thread-safety: pure functions.
#ifndef TENSORFERRY_ENGINE_FILE_SHM_NAME_H_
#define TENSORFERRY_ENGINE_FILE_SHM_NAME_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tensorferry::engine {

inline constexpr std::string_view kShmDirectory = "/dev/shm";
inline constexpr std::string_view kShmPrefix = "smg-tokenspeed-";

struct ShmName {
  enum class Kind {
    kOther,  // of nobody that we know
    kOurs,
    kStock,  // the prefix and a pid, whatever follows
    kProbe,
  };
  Kind kind = Kind::kOther;
  uint32_t pid = 0;  // not of kOther
  friend bool operator==(const ShmName&, const ShmName&) = default;
};

ShmName ParseShmName(std::string_view name);

struct ShmNameParts {
  uint32_t pid = 0;
  uint64_t unix_ns = 0;
  uint64_t counter = 0;
  uint64_t random = 0;
};
std::string MakeShmName(const ShmNameParts& parts);

// The file that a message may mean by `name`, which comes with or without leading slashes:
// kBadDescriptor for what leads elsewhere than into the directory, or to a file that no gateway
// wrote.
absl::StatusOr<std::string> CheckShmName(std::string_view name);

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_FILE_SHM_NAME_H_
