// Touches pages before they are needed: the first touch of a page costs several times a copy into
// it.
//
//   int error = Prefault(memory, stop, PopulateByKernel);
//
// Thread-safety: the memory may be read and written by others meanwhile.
#ifndef TENSORFERRY_ARENA_PREFAULT_H_
#define TENSORFERRY_ARENA_PREFAULT_H_

#include <cstddef>
#include <functional>
#include <span>
#include <stop_token>

namespace tensorferry::arena {

// Small enough that a stop is obeyed within a few milliseconds.
inline constexpr size_t kPrefaultPiece = size_t{4} << 20;

// Maps and allocates every page of a piece for writing; 0, or an errno.
using Populate = std::function<int(std::span<std::byte> piece)>;

// By madvise(MADV_POPULATE_WRITE): EINVAL before Linux 5.14.
int PopulateByKernel(std::span<std::byte> piece);
// By a write to each page that changes nothing, whatever others write there meanwhile.
int PopulateByTouch(std::span<std::byte> piece);

// Piece by piece until the end, an error or a stop. 0, an errno, or ECANCELED when stopped.
int Prefault(std::span<std::byte> memory, const std::stop_token& stop, const Populate& populate);

}  // namespace tensorferry::arena

#endif  // TENSORFERRY_ARENA_PREFAULT_H_
