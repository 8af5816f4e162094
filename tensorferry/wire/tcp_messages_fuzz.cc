// Requests and answers of engine/tcp: what decodes encodes to the very same bytes.
#include <algorithm>

#include "tensorferry/base/error.h"
#include "tensorferry/base/fuzz_testing.h"
#include "tensorferry/wire/tcp_messages.h"

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
  if (size >= kTcpRequestBytes) {
    const auto request = bytes.first<kTcpRequestBytes>();
    Check(DecodeTcpRequest(request), request, EncodeTcpRequest);
  }
  if (size >= kTcpAnswerBytes) {
    const auto answer = bytes.first<kTcpAnswerBytes>();
    const auto decoded = DecodeTcpAnswer(answer);
    Check(decoded, answer, EncodeTcpAnswer);
    // Otherwise a reader would take the next answer for a payload.
    if (decoded.ok()) tensorferry::Require(decoded->status == 0 || decoded->length == 0);
  }
  return 0;
}
