// Hands out pieces of a range of offsets. Knows nothing of memory: a pure data structure.
//
//   Allocator a(1 << 30);
//   std::optional<uint64_t> at = a.Allocate(9 << 20);    // none when no free piece is large enough
//   a.Free(*at);
//
// Best fit (of equals the lowest offset) with immediate coalescing, in O(log n) of the number of
// free pieces. Offsets and sizes are multiples of kGranule.
// Thread-safety: none; the caller locks.
#ifndef TENSORFERRY_ARENA_ALLOCATOR_H_
#define TENSORFERRY_ARENA_ALLOCATOR_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"

namespace tensorferry::arena {

inline constexpr uint64_t kGranule = 64;

// `bytes` is at most UINT64_MAX - kGranule + 1.
constexpr uint64_t RoundUpToGranule(uint64_t bytes) {
  return (bytes + kGranule - 1) / kGranule * kGranule;
}

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
  uint64_t largest_free() const { return free_.empty() ? 0 : free_.rbegin()->first.first; }

 private:
  using Index = uint32_t;
  static constexpr Index kNone = UINT32_MAX;
  using SizeThenOffset = std::pair<uint64_t, uint64_t>;

  // The range is cut into pieces, free and taken, that know their neighbours: coalescing looks at
  // two of them instead of searching an index by offset.
  struct Piece {
    uint64_t offset;
    uint64_t size;
    Index before;
    Index after;
    bool free;
  };

  Index NewPiece(const Piece& piece);
  void AddFree(Index index);
  void RemoveFree(Index index);
  // Makes `index` reach over the piece after it, which is gone then.
  void Absorb(Index index);

  uint64_t capacity_;
  uint64_t used_ = 0;
  std::vector<Piece> pieces_;
  std::vector<Index> unused_;  // places in pieces_ to use again
  absl::btree_map<SizeThenOffset, Index> free_;
  absl::flat_hash_map<uint64_t, Index> taken_;  // by offset
};

}  // namespace tensorferry::arena

#endif  // TENSORFERRY_ARENA_ALLOCATOR_H_
