// The four bytes that begin every message between our own peers: three letters and the version's
// digit.
//
//   Reader in(bytes);
//   if (absl::Status s = CheckMagic(&in, "TFQ1", "tcp request"); !s.ok()) return s;
//
// Thread-safety: pure function.
#ifndef TENSORFERRY_WIRE_MAGIC_H_
#define TENSORFERRY_WIRE_MAGIC_H_

#include <string_view>

#include "absl/status/status.h"
#include "tensorferry/wire/bytes.h"

namespace tensorferry::wire {

// Reads the magic. kUnknownVersion when only the digit differs, kProtocol for anything else; both
// name what came and what was expected. `what` names the message.
absl::Status CheckMagic(Reader* in, std::string_view magic, std::string_view what);

}  // namespace tensorferry::wire

#endif  // TENSORFERRY_WIRE_MAGIC_H_
