#include "tensorferry/wire/descriptor_kind.h"

#include <string_view>

#include "tensorferry/wire/bytes.h"
#include "tensorferry/wire/descriptor.h"
#include "tensorferry/wire/smg_descriptor.h"

namespace tensorferry::wire {

DescriptorKind SniffDescriptor(std::span<const std::byte> bytes) {
  const std::string_view text = AsText(bytes);
  if (text.starts_with(kDescriptorMagic)) return DescriptorKind::kTensorferry;
  if (text.starts_with(kSmgMagic)) return DescriptorKind::kSmg;
  if (text.starts_with(kSmgMagicFamily)) return DescriptorKind::kSmgUnknown;
  // Nothing marks a legacy descriptor but that its fields make sense.
  const auto legacy = ParseSmgDescriptor(bytes, /*explicit_key=*/0);
  const bool usable = legacy.ok() && CheckUsable(*legacy, /*nbytes=*/0).ok();
  return usable ? DescriptorKind::kLegacy : DescriptorKind::kNone;
}

}  // namespace tensorferry::wire
