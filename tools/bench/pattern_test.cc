#include "tools/bench/pattern.h"

#include <gtest/gtest.h>

#include <vector>

namespace tensorferry::tools::bench {
namespace {

TEST(BenchPattern, IsRecognisedAtEverySize) {
  for (const size_t size : {0, 1, 7, 8, 511, 512, 513, 65536, 100001}) {
    std::vector<std::byte> bytes(size);
    FillPattern(42, bytes);
    EXPECT_TRUE(IsPattern(42, bytes)) << size;
  }
}

TEST(BenchPattern, EveryByteCounts) {
  std::vector<std::byte> bytes(1031);
  FillPattern(7, bytes);
  for (std::byte& byte : bytes) {
    byte ^= std::byte{1};
    EXPECT_FALSE(IsPattern(7, bytes));
    byte ^= std::byte{1};
  }
  EXPECT_FALSE(IsPattern(8, bytes));
}

// Computed by tests/peers/stock.py, pattern(42, 24).
TEST(BenchPattern, IsTheOneOfTheStockExporter) {
  std::vector<std::byte> bytes(24);
  FillPattern(42, bytes);
  std::string hex;
  for (const std::byte byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[std::to_integer<int>(byte) >> 4];
    hex += kDigits[std::to_integer<int>(byte) & 15];
  }
  EXPECT_EQ(hex, "9b88f281aecd0d31217df4476d7b95d18e4db3c5796f4e0e");
}

}  // namespace
}  // namespace tensorferry::tools::bench
