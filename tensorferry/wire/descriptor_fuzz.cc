// Our own descriptor: the bytes as they are, and with a check that agrees, so that mutations reach
// what lies behind it.
#include <algorithm>
#include <string>

#include "tensorferry/base/error.h"
#include "tensorferry/base/fuzz_testing.h"
#include "tensorferry/wire/bytes.h"
#include "tensorferry/wire/descriptor.h"
#include "tensorferry/wire/descriptor_kind.h"
#include "tensorferry/wire/descriptor_testing.h"

namespace tensorferry::wire {
namespace {

constexpr size_t kWaysAt = 10;
constexpr size_t kEnvelopeBytes = 16;

void CheckRefusal(const absl::Status& status) {
  const std::optional<Reason> reason = ReasonOf(status);
  Require(reason == Reason::kBadDescriptor || reason == Reason::kBadAddress ||
          reason == Reason::kTooShort || reason == Reason::kUnknownVersion);
}

void Check(const std::string& bytes) {
  const auto d = DecodeDescriptor(AsBytes(bytes));
  if (!d.ok()) {
    CheckRefusal(d.status());
    return;
  }
  Require(SniffDescriptor(AsBytes(bytes)) == DescriptorKind::kTensorferry);
  const std::string text = DescriptorText(*d);
  Require(std::ranges::all_of(text, [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
  if (d->ways.empty()) return;  // all of unknown kinds
  const auto again = EncodeDescriptor(*d);
  Require(again.ok());
  Require(*DecodeDescriptor(AsBytes(*again)) == *d);
  const bool skipped = d->ways.size() != static_cast<uint8_t>(bytes[kWaysAt]);
  Require(skipped || *again == bytes);
  // Nothing may be changed on the way.
  std::string flipped = bytes;
  flipped[bytes.size() / 2] ^= 1;
  Require(!DecodeDescriptor(AsBytes(flipped)).ok());
}

}  // namespace
}  // namespace tensorferry::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tensorferry::wire;
  const std::string bytes(AsText(tensorferry::FuzzBytes(data, size)));
  Check(bytes);
  if (size >= kEnvelopeBytes) Check(Reseal(bytes));
  return 0;
}
