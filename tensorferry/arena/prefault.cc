#include "tensorferry/arena/prefault.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

namespace tensorferry::arena {

int PopulateByKernel(std::span<std::byte> piece) {
  while (::madvise(piece.data(), piece.size(), MADV_POPULATE_WRITE) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

int PopulateByTouch(std::span<std::byte> piece) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  for (size_t at = 0; at < piece.size(); at += page) {
    // Not fetch_or(0), which compilers turn into a load. A failed exchange has written as well:
    // either this thread or the one that changed the byte in between.
    std::atomic_ref<std::byte> byte(piece[at]);
    std::byte value = byte.load(std::memory_order_relaxed);
    byte.compare_exchange_strong(value, value, std::memory_order_relaxed);
  }
  return 0;
}

int Prefault(std::span<std::byte> memory, const std::stop_token& stop, const Populate& populate) {
  while (!memory.empty()) {
    if (stop.stop_requested()) return ECANCELED;
    const auto piece = memory.first(std::min(memory.size(), kPrefaultPiece));
    if (const int error = populate(piece); error != 0) return error;
    memory = memory.subspan(piece.size());
  }
  return 0;
}

}  // namespace tensorferry::arena
