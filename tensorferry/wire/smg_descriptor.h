// The descriptor that SMG's gateway sends and its Python workers read (handle transport "nixl").
//
//   auto d = ParseSmgDescriptor(bytes, /*explicit_key=*/std::nullopt);
//   if (absl::Status s = CheckUsable(*d, nbytes); !s.ok()) return s;  // before any network call
//
// Layout, little-endian, packed:
//   SMGRDMA1: magic[8] | slot_addr u64 | gen u64 | key i64 | port u16 | host UTF-8 to the end
//   legacy:   slot_addr u64 | gen u64 | port u16 | host UTF-8 to the end; the caller knows the key
// Parsing accepts and refuses exactly what the stock Python parser does; what that parser lets pass
// and nobody can use is refused by CheckUsable.
// Thread-safety: pure functions.
#ifndef TENSORFERRY_WIRE_SMG_DESCRIPTOR_H_
#define TENSORFERRY_WIRE_SMG_DESCRIPTOR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tensorferry/base/export.h"

namespace tensorferry::wire {

inline constexpr std::string_view kSmgMagic = "SMGRDMA1";
// What every version of the magic begins with.
inline constexpr std::string_view kSmgMagicFamily = kSmgMagic.substr(0, 7);

struct SmgDescriptor {
  uint64_t slot_addr = 0;  // of the frame's header stamp, in the gateway's address space
  uint64_t gen = 0;
  int64_t key = 0;
  uint16_t port = 0;  // of the gateway's NIXL listener
  std::string host;
  bool legacy = false;      // had no magic
  bool near_magic = false;  // began with SMGRDMA, but is not version 1
  friend bool operator==(const SmgDescriptor&, const SmgDescriptor&) = default;
};

// kTooShort, kBadIpText, kKeyMismatch or kLegacyNeedsKey, in the stock order of checks.
TENSORFERRY_EXPORT absl::StatusOr<SmgDescriptor> ParseSmgDescriptor(
    std::span<const std::byte> bytes, std::optional<int64_t> explicit_key);

// kUnknownMagic, kBadAddress (host not a dotted quad or IPv6 literal that can be dialled; port 0),
// kBadGeneration (0), kBadDescriptor (slot_addr 0, or the frame would wrap around 2^64), kTooLarge
// (the frame alone would).
TENSORFERRY_EXPORT absl::Status CheckUsable(const SmgDescriptor& descriptor, uint64_t nbytes);

// Always the SMGRDMA1 form.
TENSORFERRY_EXPORT std::string EncodeSmgDescriptor(const SmgDescriptor& descriptor);

// One line per field.
TENSORFERRY_EXPORT std::string SmgDescriptorText(const SmgDescriptor& descriptor);

}  // namespace tensorferry::wire

#endif  // TENSORFERRY_WIRE_SMG_DESCRIPTOR_H_
