// Unpredictable bytes from the kernel, fetched in batches.
//
//   RandomSource random;
//   uint64_t epoch = random.Next64();
//   wire::Token token = random.Bytes<16>();
//
// Thread-safety: none; the owner locks.
#ifndef TENSORFERRY_BASE_RANDOM_H_
#define TENSORFERRY_BASE_RANDOM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensorferry/base/export.h"

namespace tensorferry {

class TENSORFERRY_EXPORT RandomSource {
 public:
  template <size_t N>
  std::array<uint8_t, N> Bytes() {
    static_assert(N <= kBatch);
    std::array<uint8_t, N> out;
    Fill(out.data(), N);
    return out;
  }
  uint64_t Next64() {
    uint64_t value;
    const auto bytes = Bytes<sizeof(value)>();
    std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }

 private:
  static constexpr size_t kBatch = 1024;
  void Fill(uint8_t* out, size_t n);

  std::array<uint8_t, kBatch> batch_;
  size_t left_ = 0;
};

}  // namespace tensorferry

#endif  // TENSORFERRY_BASE_RANDOM_H_
