// Messages of engine/local, of any size: what decodes encodes to the very same bytes.
#include <algorithm>

#include "tensorferry/base/error.h"
#include "tensorferry/base/fuzz_testing.h"
#include "tensorferry/wire/local_messages.h"

namespace tensorferry::wire {
namespace {

template <typename Message, typename Encode>
void Check(const absl::StatusOr<Message>& message, std::span<const std::byte> bytes,
           Encode encode) {
  if (message.ok()) {
    Require(std::ranges::equal(encode(*message), bytes));
  } else {
    const auto reason = ReasonOf(message.status());
    Require(reason == Reason::kProtocol || reason == Reason::kUnknownVersion);
  }
}

}  // namespace
}  // namespace tensorferry::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tensorferry::wire;
  const auto bytes = tensorferry::FuzzBytes(data, size);
  const auto welcome = DecodeLocalWelcome(bytes);
  const auto release = DecodeLocalRelease(bytes);
  tensorferry::Require(!(welcome.ok() && release.ok()));
  Check(welcome, bytes, EncodeLocalWelcome);
  Check(release, bytes, EncodeLocalRelease);
  return 0;
}
