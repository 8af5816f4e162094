// Hands out pieces of a range of offsets. Knows nothing of memory: a pure data structure.
//
//   Allocator a(1 << 30);
//   std::optional<uint64_t> at = a.Allocate(9 << 20);    // none when no free piece is large enough
//   a.Free(*at);
//
// Best fit with immediate coalescing, in O(log n) of the number of free pieces. Offsets and sizes are
// multiples of kGranule. Thread-safety: none; the caller locks.
#ifndef TENSORFERRY_ARENA_ALLOCATOR_H_
#define TENSORFERRY_ARENA_ALLOCATOR_H_

#include <cstdint>
#include <optional>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"

namespace tensorferry::arena {

inline constexpr uint64_t kGranule = 64;

class Allocator {
 public:
  // `capacity` is rounded down to a multiple of kGranule.
  explicit Allocator(uint64_t capacity);

  // Rounded up to kGranule; 0 takes one granule, so that every piece has an offset of its own.
  std::optional<uint64_t> Allocate(uint64_t bytes);
  // `offset` must be one that Allocate returned and that is not free.
  void Free(uint64_t offset);

  uint64_t capacity() const { return capacity_; }
  uint64_t used_bytes() const { return used_; }
  uint64_t largest_free() const;

 private:
  uint64_t capacity_;
  uint64_t used_ = 0;
  absl::btree_map<uint64_t, uint64_t> free_by_offset_;              // offset → size
  absl::btree_set<std::pair<uint64_t, uint64_t>> free_by_size_;     // (size, offset)
  absl::flat_hash_map<uint64_t, uint64_t> taken_;                   // offset → size
};

}  // namespace tensorferry::arena

#endif  // TENSORFERRY_ARENA_ALLOCATOR_H_
