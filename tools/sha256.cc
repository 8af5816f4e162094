#include "tools/sha256.h"

#include <openssl/evp.h>

#include <cstdlib>

namespace tensorferry::tools {

Sha256Digest Sha256(std::span<const std::byte> bytes) {
  Sha256Digest digest;
  // Fails only where OpenSSL was built or configured without SHA-256: then nothing here can be
  // vouched for, and a made-up digest would be worse than the end of the process.
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr) != 1) {
    std::abort();
  }
  return digest;
}

std::string Hex(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace tensorferry::tools
