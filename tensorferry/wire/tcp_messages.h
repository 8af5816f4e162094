// Messages of engine/tcp, fixed size, little-endian; engine/ucx has the same, and `locate`.
//
// The puller sends requests, the exporter answers reads in order on the same connection:
//   request (96 bytes): magic "TFQ1" | kind u16 (1 read, 2 done, 3 locate) | zero u16 | request u64 |
//     instance[16] | lease u64 | generation u64 | token[16] | offset u64 | length u64 |
//     deadline_ms u32 (what is left of the pull's time; 0: no deadline) | zero u32 | zero u64
//   answer (32 bytes): magic "TFA1" | status u16 (0: payload follows; else a Reason's number) |
//     zero u16 | request u64 | length u64 | zero u64, then `length` bytes of payload
// A refusal carries no payload: its length is 0. A done has no answer. Decoding trusts no length.
// Thread-safety: pure functions.
#ifndef TENSORFERRY_WIRE_TCP_MESSAGES_H_
#define TENSORFERRY_WIRE_TCP_MESSAGES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "tensorferry/wire/descriptor.h"

namespace tensorferry::wire {

inline constexpr size_t kTcpRequestBytes = 96;
inline constexpr size_t kTcpAnswerBytes = 32;

struct TcpRequest {
  enum class Kind : uint16_t {
    kRead = 1,
    kDone = 2,
    kLocate = 3,  // over ucx alone: see wire/ucx_location.h
  };
  Kind kind = Kind::kRead;
  uint64_t request = 0;
  InstanceId instance = {};
  LeaseRef lease = {};
  uint64_t offset = 0;
  uint64_t length = 0;
  uint32_t deadline_ms = 0;
  friend bool operator==(const TcpRequest&, const TcpRequest&) = default;
};

struct TcpAnswer {
  uint16_t status = 0;
  uint64_t request = 0;
  uint64_t length = 0;
  friend bool operator==(const TcpAnswer&, const TcpAnswer&) = default;
};

std::array<std::byte, kTcpRequestBytes> EncodeTcpRequest(const TcpRequest& request);
// kProtocol for a wrong magic, kind or non-zero padding; kUnknownVersion for "TFQ" and another
// digit.
absl::StatusOr<TcpRequest> DecodeTcpRequest(std::span<const std::byte, kTcpRequestBytes> bytes);
std::array<std::byte, kTcpAnswerBytes> EncodeTcpAnswer(const TcpAnswer& answer);
// kProtocol for a wrong magic, non-zero padding or a refusal with a length; kUnknownVersion as
// above. A status that is no Reason here is let through: a newer peer may know more.
absl::StatusOr<TcpAnswer> DecodeTcpAnswer(std::span<const std::byte, kTcpAnswerBytes> bytes);

}  // namespace tensorferry::wire

#endif  // TENSORFERRY_WIRE_TCP_MESSAGES_H_
