// The frame that one-sided readers see: gen u64 | payload | gen u64, little-endian, packed.
//
//   WriteFrameHeader(slot, gen);   // before the payload
//   WriteFrameTrailer(slot, nbytes, gen);
//   if (!CheckFrame(bytes, nbytes, gen).ok()) ...   // torn, or another lease
//
// Thread-safety: the caller orders the stores; these only write and read bytes.
#ifndef TENSORFERRY_WIRE_FRAME_H_
#define TENSORFERRY_WIRE_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace tensorferry::wire {

inline constexpr uint64_t kFrameStampBytes = 8;
inline constexpr uint64_t kFrameOverhead = 2 * kFrameStampBytes;

// nbytes + 16, or kTooLarge when that does not fit 64 bits.
absl::StatusOr<uint64_t> FrameBytes(uint64_t nbytes);
void WriteFrameHeader(std::byte* frame, uint64_t gen);
void WriteFrameTrailer(std::byte* frame, uint64_t nbytes, uint64_t gen);
// kSizeMismatch when `frame` is not nbytes + 16 long; kBadGeneration when a stamp differs.
absl::Status CheckFrame(std::span<const std::byte> frame, uint64_t nbytes, uint64_t gen);

}  // namespace tensorferry::wire

#endif  // TENSORFERRY_WIRE_FRAME_H_
