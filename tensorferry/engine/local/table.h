// The memory that gateway and worker share in engine/local, beside the arena itself.
//
// Two arrays, both indexed by a lease's id:
//   table  (written by the exporter, read-only for workers): where each lease is, and whether it is readable
//   board  (one per worker, written by that worker, read by the exporter): which leases it claims
//
// Claiming is a store and a load, not a round trip. Worker: board[id] = generation, then check that
// table[id].generation still equals it; if so the lease cannot be reused until the worker writes board[id] = 0.
// Exporter: table[id].generation = 0, then look at every board; a lease that one claims is kept until that
// worker releases it or dies. All four accesses are sequentially consistent, so at least one of the two sees the
// other (Dekker's argument; the same idea as hazard pointers, Michael, 2004).
#ifndef TENSORFERRY_ENGINE_LOCAL_TABLE_H_
#define TENSORFERRY_ENGINE_LOCAL_TABLE_H_

#include <atomic>
#include <cstdint>

#include "tensorferry/wire/descriptor.h"

namespace tensorferry::engine {

// All fields but `generation` are written before it becomes non-zero and stay until the lease's memory is free.
struct alignas(64) TableEntry {
  std::atomic<uint64_t> generation;  // 0: not readable
  uint64_t payload_offset;
  uint64_t nbytes;
  uint8_t token[16];
  uint8_t unused[24];
};
static_assert(sizeof(TableEntry) == 64);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

using ClaimWord = std::atomic<uint64_t>;  // generation claimed, or 0
static_assert(sizeof(ClaimWord) == 8);

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_LOCAL_TABLE_H_
