// SMG's descriptors. Input: flags u8 (bit 0: an explicit key follows) | key i64 if so | nbytes u64
// | the descriptor's bytes.
#include <algorithm>
#include <limits>
#include <optional>
#include <string>

#include "tensorferry/base/error.h"
#include "tensorferry/base/fuzz_testing.h"
#include "tensorferry/base/net.h"
#include "tensorferry/wire/bytes.h"
#include "tensorferry/wire/descriptor_kind.h"
#include "tensorferry/wire/frame.h"
#include "tensorferry/wire/smg_descriptor.h"
#include "tensorferry/wire/utf8.h"

namespace tensorferry::wire {
namespace {

constexpr size_t kMagicBytes = 8;
constexpr size_t kKeyBytes = 8;
constexpr size_t kKeyAt = 24;

void CheckRefusal(const absl::Status& status, bool has_key) {
  const std::optional<Reason> reason = ReasonOf(status);
  Require(reason == Reason::kTooShort || reason == Reason::kBadIpText ||
          reason == Reason::kKeyMismatch || reason == Reason::kLegacyNeedsKey);
  if (has_key) Require(reason != Reason::kLegacyNeedsKey);
  if (!has_key) Require(reason != Reason::kKeyMismatch);
}

void CheckParsed(const SmgDescriptor& d, std::span<const std::byte> bytes) {
  std::string encoded = EncodeSmgDescriptor(d);
  if (d.legacy) encoded.erase(kKeyAt, kKeyBytes).erase(0, kMagicBytes);
  Require(encoded == AsText(bytes));
  Require(IsUtf8(d.host));
  const std::string text = SmgDescriptorText(d);
  Require(std::ranges::all_of(text, [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
}

void CheckUse(const SmgDescriptor& d, uint64_t nbytes, std::span<const std::byte> bytes) {
  if (!CheckUsable(d, nbytes).ok()) return;
  Require(!d.near_magic && d.gen != 0 && d.slot_addr != 0);
  Require(d.slot_addr <= std::numeric_limits<uint64_t>::max() - *FrameBytes(nbytes));
  Require(SocketAddress::ParseHost(d.host, d.port)->CheckDialable().ok());
  Require(SniffDescriptor(bytes) == (d.legacy ? DescriptorKind::kLegacy : DescriptorKind::kSmg));
}

}  // namespace
}  // namespace tensorferry::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tensorferry::wire;
  Reader in(tensorferry::FuzzBytes(data, size));
  std::optional<int64_t> key;
  if ((in.U8() & 1) != 0) key = in.I64();
  const uint64_t nbytes = in.U64();
  const auto bytes = in.Rest();
  const auto d = ParseSmgDescriptor(bytes, key);
  if (!d.ok()) {
    CheckRefusal(d.status(), key.has_value());
    return 0;
  }
  tensorferry::Require(!key || d->key == *key);
  tensorferry::Require(key || !d->legacy);
  CheckParsed(*d, bytes);
  // Ours is told from theirs before the key is looked at.
  if (SniffDescriptor(bytes) != DescriptorKind::kTensorferry) CheckUse(*d, nbytes, bytes);
  return 0;
}
