// The frame check. Input: nbytes u64 | gen u64 | the frame.
#include <string>

#include "tensorferry/base/error.h"
#include "tensorferry/base/fuzz_testing.h"
#include "tensorferry/wire/bytes.h"
#include "tensorferry/wire/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tensorferry;
  wire::Reader in(FuzzBytes(data, size));
  const uint64_t nbytes = in.U64();
  const uint64_t gen = in.U64();
  const auto frame = in.Rest();
  const auto expected = wire::FrameBytes(nbytes);
  const absl::Status status = wire::CheckFrame(frame, nbytes, gen);
  if (!expected.ok() || *expected != frame.size()) {
    Require(ReasonOf(status) == Reason::kSizeMismatch);
    return 0;
  }
  Require(status.ok() || ReasonOf(status) == Reason::kBadGeneration);
  // The right stamps make any bytes a frame, and touch nothing else.
  std::string copy(wire::AsText(frame));
  const auto bytes = std::as_writable_bytes(std::span(copy));
  wire::WriteFrameHeader(bytes.data(), gen);
  wire::WriteFrameTrailer(bytes.data(), nbytes, gen);
  Require(wire::CheckFrame(bytes, nbytes, gen).ok());
  Require(copy.substr(wire::kFrameStampBytes, nbytes) ==
          wire::AsText(frame).substr(wire::kFrameStampBytes, nbytes));
  Require(status.ok() == (copy == wire::AsText(frame)));
  return 0;
}
