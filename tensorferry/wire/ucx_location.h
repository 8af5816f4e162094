// What the gateway of engine/ucx answers to `locate`: where a lease lies, for a reader that fetches by
// itself (UCX's GET).
//
//   address u64 (of the payload, in the gateway's process) | nbytes u64 (of the whole payload) |
//   remote key of the arena, 1 to 1024 bytes, as UCX packs it
// It is the payload of a TcpAnswer. The stamps of the lease's frame (wire/frame.h) lie right before
// and behind the payload. Decoding trusts no length, and what it lets pass does not wrap around.
// Thread-safety: pure functions.
#ifndef TENSORFERRY_WIRE_UCX_LOCATION_H_
#define TENSORFERRY_WIRE_UCX_LOCATION_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace tensorferry::wire {

inline constexpr size_t kMaxRemoteKeyBytes = 1024;

struct UcxLocation {
  uint64_t address = 0;
  uint64_t nbytes = 0;
  std::vector<std::byte> remote_key = {};
  friend bool operator==(const UcxLocation&, const UcxLocation&) = default;
};

std::vector<std::byte> EncodeUcxLocation(const UcxLocation& location);
// kProtocol for a key of another size, and for a frame that no process can hold.
absl::StatusOr<UcxLocation> DecodeUcxLocation(std::span<const std::byte> bytes);

}  // namespace tensorferry::wire

#endif  // TENSORFERRY_WIRE_UCX_LOCATION_H_
