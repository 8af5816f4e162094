#include "tensorferry/base/random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdlib>

namespace tensorferry {

void RandomSource::Fill(uint8_t* out, size_t n) {
  if (left_ < n) {
    size_t filled = 0;
    while (filled < kBatch) {
      const ssize_t got = ::getrandom(batch_.data() + filled, kBatch - filled, 0);
      if (got > 0) {
        filled += static_cast<size_t>(got);
      } else if (errno != EINTR) {
        // Tokens made of anything else would be guessable; every Linux this runs on has getrandom.
        std::abort();
      }
    }
    left_ = kBatch;
  }
  left_ -= n;
  std::memcpy(out, batch_.data() + left_, n);
  // Handed-out bytes are tokens: they do not stay here.
  std::memset(batch_.data() + left_, 0, n);
}

}  // namespace tensorferry
