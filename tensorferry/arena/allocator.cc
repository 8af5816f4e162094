#include "tensorferry/arena/allocator.h"

#include <algorithm>
#include <cassert>

namespace tensorferry::arena {

Allocator::Allocator(uint64_t capacity) : capacity_(capacity / kGranule * kGranule) {
  if (capacity_ == 0) return;
  AddFree(
      NewPiece({.offset = 0, .size = capacity_, .before = kNone, .after = kNone, .free = true}));
}

std::optional<uint64_t> Allocator::Allocate(uint64_t bytes) {
  // Before rounding up, which could overflow.
  if (bytes > capacity_) return std::nullopt;
  const uint64_t size = RoundUpToGranule(std::max<uint64_t>(bytes, 1));
  const auto best = free_.lower_bound({size, 0});
  if (best == free_.end()) return std::nullopt;

  const Index index = best->second;
  free_.erase(best);
  pieces_[index].free = false;
  const uint64_t offset = pieces_[index].offset;
  const uint64_t rest = pieces_[index].size - size;
  if (rest > 0) {
    const Index after = pieces_[index].after;
    const Index cut = NewPiece(
        {.offset = offset + size, .size = rest, .before = index, .after = after, .free = true});
    if (after != kNone) pieces_[after].before = cut;
    pieces_[index].after = cut;
    pieces_[index].size = size;
    AddFree(cut);
  }
  taken_.emplace(offset, index);
  used_ += size;
  return offset;
}

void Allocator::Free(uint64_t offset) {
  const auto found = taken_.find(offset);
  assert(found != taken_.end());
  if (found == taken_.end()) return;
  Index index = found->second;
  taken_.erase(found);
  used_ -= pieces_[index].size;
  pieces_[index].free = true;

  const Index after = pieces_[index].after;
  if (after != kNone && pieces_[after].free) {
    RemoveFree(after);
    Absorb(index);
  }
  const Index before = pieces_[index].before;
  if (before != kNone && pieces_[before].free) {
    RemoveFree(before);
    Absorb(before);
    index = before;
  }
  AddFree(index);
}

Allocator::Index Allocator::NewPiece(const Piece& piece) {
  if (unused_.empty()) {
    pieces_.push_back(piece);
    return static_cast<Index>(pieces_.size() - 1);
  }
  const Index index = unused_.back();
  unused_.pop_back();
  pieces_[index] = piece;
  return index;
}

void Allocator::AddFree(Index index) {
  free_.emplace(SizeThenOffset(pieces_[index].size, pieces_[index].offset), index);
}

void Allocator::RemoveFree(Index index) {
  free_.erase(SizeThenOffset(pieces_[index].size, pieces_[index].offset));
}

void Allocator::Absorb(Index index) {
  Piece& piece = pieces_[index];
  const Index gone = piece.after;
  piece.size += pieces_[gone].size;
  piece.after = pieces_[gone].after;
  if (piece.after != kNone) pieces_[piece.after].before = index;
  unused_.push_back(gone);
}

}  // namespace tensorferry::arena
