#include "tensorferry/wire/frame.h"

#include <limits>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/wire/bytes.h"

namespace tensorferry::wire {

absl::StatusOr<uint64_t> FrameBytes(uint64_t nbytes) {
  if (nbytes > std::numeric_limits<uint64_t>::max() - kFrameOverhead) {
    return MakeError(Reason::kTooLarge, StrCat("a payload of ", nbytes, " bytes and its ",
                                               kFrameOverhead, " bytes of stamps"));
  }
  return nbytes + kFrameOverhead;
}

void WriteFrameHeader(std::byte* frame, uint64_t gen) { StoreLe(frame, gen); }

void WriteFrameTrailer(std::byte* frame, uint64_t nbytes, uint64_t gen) {
  StoreLe(frame + kFrameStampBytes + nbytes, gen);
}

absl::Status CheckFrame(std::span<const std::byte> frame, uint64_t nbytes, uint64_t gen) {
  if (frame.size() < kFrameOverhead || frame.size() - kFrameOverhead != nbytes) {
    return MakeError(Reason::kSizeMismatch,
                     StrCat("frame of ", frame.size(), " bytes for a payload of ", nbytes, " and ",
                            kFrameOverhead, " bytes of stamps"));
  }
  const uint64_t header = LoadLe<uint64_t>(frame.data());
  const uint64_t trailer = LoadLe<uint64_t>(frame.data() + kFrameStampBytes + nbytes);
  if (header != gen || trailer != gen) {
    return MakeError(Reason::kBadGeneration,
                     StrCat("expected generation ", gen, ", the frame begins with ", header,
                            " and ends with ", trailer));
  }
  return absl::OkStatus();
}

}  // namespace tensorferry::wire
