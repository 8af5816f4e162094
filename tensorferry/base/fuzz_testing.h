// For fuzz targets: what must hold whatever the input is.
//
//   extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
//     const auto message = Decode(FuzzBytes(data, size));
//     if (message.ok()) Require(Encode(*message) == bytes);
#ifndef TENSORFERRY_BASE_FUZZ_TESTING_H_
#define TENSORFERRY_BASE_FUZZ_TESTING_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "absl/status/statusor.h"
#include "tensorferry/base/error.h"

namespace tensorferry {

// Not assert(): fuzz targets are built with optimisation, and then NDEBUG.
inline void Require(bool holds) {
  if (!holds) std::abort();
}

inline std::span<const std::byte> FuzzBytes(const uint8_t* data, size_t size) {
  return std::as_bytes(std::span(data, size));
}

// A message of an engine either encodes to the bytes that it was decoded from, or was refused as
// such.
template <typename Message, typename Encode>
void RequireRoundTrip(const absl::StatusOr<Message>& message, std::span<const std::byte> bytes,
                      Encode encode) {
  if (message.ok()) {
    Require(std::ranges::equal(encode(*message), bytes));
  } else {
    const auto reason = ReasonOf(message.status());
    Require(reason == Reason::kProtocol || reason == Reason::kUnknownVersion);
  }
}

}  // namespace tensorferry

#endif  // TENSORFERRY_BASE_FUZZ_TESTING_H_
