// Our own descriptor (handle transport "tensorferry"): what a worker needs to fetch one lease.
//
//   wire::Descriptor d;
//   d.lease = {.id = 7, .generation = gen, .token = token};
//   d.nbytes = span.size();
//   d.ways.push_back(wire::LocalWay{boot_id, "/run/gw.sock"});
//   d.ways.push_back(wire::NetWay{wire::NetWay::Kind::kTcp, {address}});
//   std::string bytes = *wire::EncodeDescriptor(d);
//
// The gateway lists the ways that it permits; the worker picks one. A stock handle is read into the
// same type, with one way that only such handles name. Layout, version 1, little-endian:
//   magic "TFERRY" | version u8 | flags u8 (bit 0: checksum, bit 1: wants done) | total u16 | ways
//   u8 | zero u8 | instance[16] | lease u64 | generation u64 | token[16] | key i64 | nbytes u64 |
//   checksum u64; then per way: kind u8 | zero u8 | length u16 | body
//     kind 1, local: boot id[16] | path of the socket, to the end
//     kind 2, tcp, and 3, ucx: per address: family u8 (4 or 6) | zero u8 | port u16 | 4 or 16 bytes
//     kind 4, get, right behind a ucx way: no body; readers may also fetch by themselves there
//   and last, over all before it, the low half of XXH3 as u32, so that a byte flipped on the way is
//   a bad descriptor and not a stranger's lease
// (see docs/wire.md for every field). The token is as secret as the channel that carries it:
// DescriptorText() redacts it. Decoding trusts no length.
// Thread-safety: values and pure functions.
#ifndef TENSORFERRY_WIRE_DESCRIPTOR_H_
#define TENSORFERRY_WIRE_DESCRIPTOR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/base/export.h"
#include "tensorferry/base/net.h"
#include "tensorferry/wire/smg_descriptor.h"

namespace tensorferry::wire {

using Token = std::array<uint8_t, 16>;
using InstanceId = std::array<uint8_t, 16>;  // random, one per exporter
using BootId = std::array<uint8_t, 16>;      // /proc/sys/kernel/random/boot_id as bytes

// Names one lease of one exporter, with the right to read it.
struct LeaseRef {
  uint64_t id = 0;          // index into the exporter's table of leases
  uint64_t generation = 0;  // never repeats, never 0
  Token token = {};
  friend bool operator==(const LeaseRef&, const LeaseRef&) = default;
};

// Map the arena: only for a process of the same boot and uid that sees the socket's path.
struct LocalWay {
  BootId boot_id = {};
  std::string socket_path;  // 1 to 107 bytes, absolute, no NUL
  friend bool operator==(const LocalWay&, const LocalWay&) = default;
};

// Ask over the network. Several addresses are the same listener, best first.
struct NetWay {
  enum class Kind : uint8_t { kTcp = 2, kUcx = 3 };
  Kind kind = Kind::kTcp;
  std::vector<SocketAddress> addresses;  // 1 to 8
  // Of kUcx: it also tells where a lease lies, for readers that fetch by themselves. A way of its own
  // on the wire, which readers that do not know it skip.
  bool one_sided = false;
  friend bool operator==(const NetWay&, const NetWay&) = default;
};

// A file that SMG's gateways and workers share under /dev/shm. Only in ShmHandle, never encoded
// here.
struct FileWay {
  std::string name;  // as the message gives it: nothing about it is checked yet
  uint64_t offset = 0;
  friend bool operator==(const FileWay&, const FileWay&) = default;
};

// A READ over NIXL is named by SMG's own descriptor, never encoded here.
using Way = std::variant<LocalWay, NetWay, SmgDescriptor, FileWay>;

struct Descriptor {
  InstanceId instance = {};
  LeaseRef lease;
  int64_t key = 0;
  uint64_t nbytes = 0;
  std::optional<uint64_t> checksum;  // XXH3 64 of the payload
  // The gateway counts readers: tell it when the bytes have arrived. Otherwise the lease ends with
  // its RPC and a notification would be a wasted packet.
  bool wants_done = false;
  std::vector<Way> ways;  // 1 to 8, in the gateway's order of preference
  friend bool operator==(const Descriptor&, const Descriptor&) = default;
};

inline constexpr std::string_view kDescriptorMagic = "TFERRY";
inline constexpr uint8_t kDescriptorVersion = 1;
inline constexpr size_t kMaxDescriptorBytes = 2048;

// kBadDescriptor when a field is outside its range, kBadAddress when an address cannot be dialled.
TENSORFERRY_EXPORT absl::StatusOr<std::string> EncodeDescriptor(const Descriptor& descriptor);
// kBadDescriptor, kBadAddress, kTooShort or kUnknownVersion. A way of a kind that is not known is
// skipped (a newer gateway may offer more); no known way left is not an error here.
TENSORFERRY_EXPORT absl::StatusOr<Descriptor> DecodeDescriptor(std::span<const std::byte> bytes);

// The way of this kind, null where the descriptor has none: FindWay<LocalWay>(d).
template <class Kind>
const Kind* FindWay(const Descriptor& descriptor) {
  for (const Way& way : descriptor.ways) {
    if (const Kind* found = std::get_if<Kind>(&way)) return found;
  }
  return nullptr;
}

// "local", "tcp", "ucx", "nixl", "file".
TENSORFERRY_EXPORT std::string_view TransportOf(const Way& way);

// One line per field, token redacted.
TENSORFERRY_EXPORT std::string DescriptorText(const Descriptor& descriptor);

}  // namespace tensorferry::wire

#endif  // TENSORFERRY_WIRE_DESCRIPTOR_H_
