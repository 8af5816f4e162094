// Messages of engine/local, of any size: what decodes encodes to the very same bytes.
#include "tensorferry/base/fuzz_testing.h"
#include "tensorferry/wire/local_messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tensorferry::wire;
  using tensorferry::RequireRoundTrip;
  const auto bytes = tensorferry::FuzzBytes(data, size);
  const auto welcome = DecodeLocalWelcome(bytes);
  const auto release = DecodeLocalRelease(bytes);
  tensorferry::Require(!(welcome.ok() && release.ok()));
  RequireRoundTrip(welcome, bytes, EncodeLocalWelcome);
  RequireRoundTrip(release, bytes, EncodeLocalRelease);
  return 0;
}
