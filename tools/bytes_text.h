// Sizes for people.
//
//   BytesText(uint64_t{3} << 29)                 // "1.5 GiB"; "32 MiB", "1000 B"
//
// Thread-safety: a pure function.
#ifndef TENSORFERRY_TOOLS_BYTES_TEXT_H_
#define TENSORFERRY_TOOLS_BYTES_TEXT_H_

#include <cstdint>
#include <string>

namespace tensorferry::tools {

std::string BytesText(uint64_t bytes);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_BYTES_TEXT_H_
