// Who runs here: what two processes compare to know whether they can share memory.
//
//   HostIdentity here = ThisHost();
//   if (here.boot_id == peer.boot_id && here.uid == peer.uid) ...   // a mapping will be permitted
//
// Thread-safety: pure but for reads of /proc and /dev/shm.
#ifndef TENSORFERRY_BASE_HOST_H_
#define TENSORFERRY_BASE_HOST_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tensorferry/base/export.h"

namespace tensorferry {

// Which running kernel. All zero: not known.
using BootId = std::array<uint8_t, 16>;

struct HostIdentity {
  BootId boot_id = {};
  std::optional<uint32_t> uid = {};  // effective
  // "<boot id>:<device number of /dev/shm>", the token that SMG compares. Empty: not known.
  std::string shm_namespace = {};
  // Inode numbers of /proc/self/ns/pid and /proc/self/ns/user. 0: not known.
  uint64_t pid_namespace = 0;
  uint64_t user_namespace = 0;

  friend bool operator==(const HostIdentity&, const HostIdentity&) = default;
};

// What cannot be read stays unknown, and then no two hosts are the same.
TENSORFERRY_EXPORT HostIdentity ThisHost();

// The kernel's form, "01234567-89ab-cdef-0123-456789abcdef". All zero for a text that is none.
TENSORFERRY_EXPORT BootId ParseBootId(std::string_view text);
TENSORFERRY_EXPORT std::string BootIdText(const BootId& boot_id);

}  // namespace tensorferry

#endif  // TENSORFERRY_BASE_HOST_H_
