// For tests and fuzzers of what lies behind the descriptor's trailing check.
//
//   bytes[11] = 1;                              // some field
//   DecodeDescriptor(AsBytes(Reseal(bytes)));   // is refused for that field, not for the check
#ifndef TENSORFERRY_WIRE_DESCRIPTOR_TESTING_H_
#define TENSORFERRY_WIRE_DESCRIPTOR_TESTING_H_

#include <xxhash.h>

#include <string>

#include "tensorferry/wire/bytes.h"

namespace tensorferry::wire {

// The same bytes with a length and a trailing check that agree with them; at least 14 bytes.
inline std::string Reseal(std::string bytes) {
  const auto raw = std::as_writable_bytes(std::span(bytes));
  StoreLe(raw.data() + 8, static_cast<uint16_t>(raw.size()));
  const auto checked = raw.first(raw.size() - 4);
  StoreLe(raw.data() + checked.size(),
          static_cast<uint32_t>(XXH3_64bits(checked.data(), checked.size())));
  return bytes;
}

}  // namespace tensorferry::wire

#endif  // TENSORFERRY_WIRE_DESCRIPTOR_TESTING_H_
