// The memory that gateway and worker share in engine/local, beside the arena itself.
//
// Two arrays, both indexed by a lease's id:
//   table  (written by the exporter, read-only for workers): where each lease is, and whether it is
//          readable
//   board  (one per worker, written by that worker, read by the exporter): which leases it claims
//
// Claiming is a store and a load, not a round trip. Worker: board[id] = generation, then check that
// table[id].generation still equals it; if so the lease cannot be reused until the worker writes
// board[id] = 0. Exporter: table[id].generation = 0, then look at every board; a lease that one
// claims is kept until that worker releases it or dies. All four accesses are sequentially
// consistent, so at least one of the two sees the other (Dekker's argument; the same idea as hazard
// pointers, Michael, 2004).
//
// Releasing is the same the other way round. Worker: board[id] = 0, then look at
// table[id].generation; if it is not the claimed one any more, the exporter may be waiting, and the
// worker sends a release message. Otherwise no message is needed, because Retire will see the 0.
//
// A worker that only tried to claim, and lost, may have been seen; so an exporter that waits also
// looks at the boards by itself now and then.
#ifndef TENSORFERRY_ENGINE_LOCAL_TABLE_H_
#define TENSORFERRY_ENGINE_LOCAL_TABLE_H_

#include <atomic>
#include <cstdint>
#include <cstring>

#include "tensorferry/wire/descriptor.h"

namespace tensorferry::engine {

// All fields but `generation` are written before it becomes non-zero and stay until the lease's
// memory is free. They are atomic (relaxed is enough) because a worker must read each one once: a
// gateway that changes them under its eyes may not get a checked value exchanged for another.
struct alignas(64) TableEntry {
  std::atomic<uint64_t> generation;  // 0: not readable
  std::atomic<uint64_t> payload_offset;
  std::atomic<uint64_t> nbytes;
  std::atomic<uint64_t> token[2];
  uint8_t unused[24];

  void SetToken(const wire::Token& value) {
    uint64_t halves[2];
    std::memcpy(halves, value.data(), sizeof(halves));
    token[0].store(halves[0], std::memory_order_relaxed);
    token[1].store(halves[1], std::memory_order_relaxed);
  }
  bool HasToken(const wire::Token& value) const {
    uint64_t halves[2];
    std::memcpy(halves, value.data(), sizeof(halves));
    return token[0].load(std::memory_order_relaxed) == halves[0] &&
           token[1].load(std::memory_order_relaxed) == halves[1];
  }
};
static_assert(sizeof(TableEntry) == 64);
static_assert(sizeof(wire::Token) == 16);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

using ClaimWord = std::atomic<uint64_t>;  // generation claimed, or 0
static_assert(sizeof(ClaimWord) == 8);

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_LOCAL_TABLE_H_
