// Messages of engine/local, over a unix SOCK_SEQPACKET socket, fixed size, little-endian.
//
//   exporter → puller, once, right after accept, with three descriptors by SCM_RIGHTS (arena, lease
//   table, this worker's claim board), or with none when it refuses:
//     welcome (64 bytes): magic "TFW1" | status u16 (0, or a Reason's number) | zero u16 |
//       instance[16] | arena_bytes u64 | table_entries u64 | max_claim_bytes u64 | zero[16]
//   puller → exporter, when a reader of a lease that counts its readers is done, and when the
//   last claim on a lease goes that has ended meanwhile:
//     release (48 bytes): magic "TFR1" | zero u32 | lease u64 | generation u64 | token[16] |
//       zero u64
//
// The shared tables themselves (TableEntry, claim words) are described in engine/local/table.h.
// Thread-safety: pure functions.
#ifndef TENSORFERRY_WIRE_LOCAL_MESSAGES_H_
#define TENSORFERRY_WIRE_LOCAL_MESSAGES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "tensorferry/wire/descriptor.h"

namespace tensorferry::wire {

inline constexpr size_t kLocalWelcomeBytes = 64;
inline constexpr size_t kLocalReleaseBytes = 48;

struct LocalWelcome {
  uint16_t status = 0;
  InstanceId instance = {};
  uint64_t arena_bytes = 0;
  uint64_t table_entries = 0;
  uint64_t max_claim_bytes = 0;
  friend bool operator==(const LocalWelcome&, const LocalWelcome&) = default;
};

struct LocalRelease {
  LeaseRef lease;
  friend bool operator==(const LocalRelease&, const LocalRelease&) = default;
};

std::array<std::byte, kLocalWelcomeBytes> EncodeLocalWelcome(const LocalWelcome& welcome);
// kProtocol for a wrong size, magic or padding; kUnknownVersion for "TFW" and another digit.
absl::StatusOr<LocalWelcome> DecodeLocalWelcome(std::span<const std::byte> bytes);
std::array<std::byte, kLocalReleaseBytes> EncodeLocalRelease(const LocalRelease& release);
absl::StatusOr<LocalRelease> DecodeLocalRelease(std::span<const std::byte> bytes);

}  // namespace tensorferry::wire

#endif  // TENSORFERRY_WIRE_LOCAL_MESSAGES_H_
