#include "tools/bench/pattern.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace tensorferry::tools::bench {
namespace {

constexpr size_t kBlock = 64;  // words

// The finalizer of MurmurHash3: neighbouring words have nothing in common.
constexpr uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53u;
  return x ^ (x >> 33);
}

using Block = std::array<uint64_t, kBlock>;

// Words [first, first + kBlock) of the pattern, little-endian as this host is.
void Make(uint64_t start, uint64_t first, Block* block) {
  for (size_t i = 0; i < kBlock; ++i) (*block)[i] = Mix(start + first + i);
}

}  // namespace

void FillPattern(int64_t key, std::span<std::byte> bytes) {
  const uint64_t start = Mix(static_cast<uint64_t>(key));
  Block block;
  for (size_t at = 0; at < bytes.size(); at += sizeof(block)) {
    Make(start, at / sizeof(uint64_t), &block);
    std::memcpy(bytes.data() + at, block.data(), std::min(sizeof(block), bytes.size() - at));
  }
}

bool IsPattern(int64_t key, std::span<const std::byte> bytes) {
  const uint64_t start = Mix(static_cast<uint64_t>(key));
  Block block;
  for (size_t at = 0; at < bytes.size(); at += sizeof(block)) {
    Make(start, at / sizeof(uint64_t), &block);
    const size_t size = std::min(sizeof(block), bytes.size() - at);
    if (std::memcmp(bytes.data() + at, block.data(), size) != 0) return false;
  }
  return true;
}

}  // namespace tensorferry::tools::bench
