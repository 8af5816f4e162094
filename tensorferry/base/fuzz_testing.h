// For fuzz targets: what must hold whatever the input is.
//
//   extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
//     const auto message = Decode(FuzzBytes(data, size));
//     if (message.ok()) Require(Encode(*message) == bytes);
#ifndef TENSORFERRY_BASE_FUZZ_TESTING_H_
#define TENSORFERRY_BASE_FUZZ_TESTING_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

namespace tensorferry {

// Not assert(): fuzz targets are built with optimisation, and then NDEBUG.
inline void Require(bool holds) {
  if (!holds) std::abort();
}

inline std::span<const std::byte> FuzzBytes(const uint8_t* data, size_t size) {
  return std::as_bytes(std::span(data, size));
}

}  // namespace tensorferry

#endif  // TENSORFERRY_BASE_FUZZ_TESTING_H_
