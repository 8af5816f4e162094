// Which of the known descriptors some bytes look like, by their first bytes; for tools that are
// given no transport name beside them.
//
//   switch (SniffDescriptor(bytes)) {
//     case DescriptorKind::kTensorferry: ... DecodeDescriptor(bytes) ...
//
// Thread-safety: pure function.
#ifndef TENSORFERRY_WIRE_DESCRIPTOR_KIND_H_
#define TENSORFERRY_WIRE_DESCRIPTOR_KIND_H_

#include <cstddef>
#include <span>

#include "tensorferry/base/export.h"

namespace tensorferry::wire {

enum class DescriptorKind {
  kTensorferry,  // our magic: DecodeDescriptor says whether it is whole
  kSmg,          // SMGRDMA1: ParseSmgDescriptor says whether it is whole
  kSmgUnknown,   // SMGRDMA and another version
  kLegacy,       // no magic, but with any key it would be a legacy SMG descriptor that can be used
  kNone,
};

TENSORFERRY_EXPORT DescriptorKind SniffDescriptor(std::span<const std::byte> bytes);

}  // namespace tensorferry::wire

#endif  // TENSORFERRY_WIRE_DESCRIPTOR_KIND_H_
