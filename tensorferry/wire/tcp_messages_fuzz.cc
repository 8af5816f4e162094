// Requests and answers of engine/tcp, and locations of engine/ucx: what decodes encodes to the very same bytes.
#include "tensorferry/base/fuzz_testing.h"
#include "tensorferry/wire/tcp_messages.h"
#include "tensorferry/wire/ucx_location.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tensorferry::wire;
  using tensorferry::RequireRoundTrip;
  const auto bytes = tensorferry::FuzzBytes(data, size);
  if (size >= kTcpRequestBytes) {
    const auto request = bytes.first<kTcpRequestBytes>();
    RequireRoundTrip(DecodeTcpRequest(request), request, EncodeTcpRequest);
  }
  if (size >= kTcpAnswerBytes) {
    const auto answer = bytes.first<kTcpAnswerBytes>();
    const auto decoded = DecodeTcpAnswer(answer);
    RequireRoundTrip(decoded, answer, EncodeTcpAnswer);
    // Otherwise a reader would take the next answer for a payload.
    if (decoded.ok()) tensorferry::Require(decoded->status == 0 || decoded->length == 0);
  }
  RequireRoundTrip(DecodeUcxLocation(bytes), bytes, EncodeUcxLocation);
  return 0;
}
