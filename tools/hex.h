// Bytes from hexadecimal digits, as descriptors are given on a command line.
//
//   absl::StatusOr<std::string> bytes = FromHex("54464552");
//
// Thread-safety: pure function.
#ifndef TENSORFERRY_TOOLS_HEX_H_
#define TENSORFERRY_TOOLS_HEX_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tensorferry::tools {

// kBadOption, naming the first character that is no digit, or that one is missing.
absl::StatusOr<std::string> FromHex(std::string_view text);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_HEX_H_
