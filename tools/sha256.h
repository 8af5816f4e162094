// SHA-256, by which both ends of a transfer say what they hold.
//
//   Sha256Digest digest = Sha256(bytes);
//   std::string text = Hex(digest);          // lower case, 64 characters
//
// Thread-safety: pure functions.
#ifndef TENSORFERRY_TOOLS_SHA256_H_
#define TENSORFERRY_TOOLS_SHA256_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tensorferry::tools {

using Sha256Digest = std::array<uint8_t, 32>;

Sha256Digest Sha256(std::span<const std::byte> bytes);
std::string Hex(std::span<const uint8_t> bytes);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_SHA256_H_
