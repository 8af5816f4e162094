#include "tensorferry/wire/ucx_location.h"

#include <limits>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/wire/bytes.h"
#include "tensorferry/wire/frame.h"

namespace tensorferry::wire {
namespace {

constexpr size_t kFixedBytes = 16;

}  // namespace

std::vector<std::byte> EncodeUcxLocation(const UcxLocation& location) {
  std::vector<std::byte> out(kFixedBytes + location.remote_key.size());
  Writer to(out);
  to.U64(location.address);
  to.U64(location.nbytes);
  to.Bytes(location.remote_key);
  return out;
}

absl::StatusOr<UcxLocation> DecodeUcxLocation(std::span<const std::byte> bytes) {
  if (bytes.size() <= kFixedBytes || bytes.size() > kFixedBytes + kMaxRemoteKeyBytes) {
    return MakeError(Reason::kProtocol,
                     StrCat("a location of ", bytes.size(), " bytes, not ", kFixedBytes + 1, " to ",
                            kFixedBytes + kMaxRemoteKeyBytes));
  }
  Reader in(bytes);
  UcxLocation location;
  location.address = in.U64();
  location.nbytes = in.U64();
  const auto key = in.Rest();
  location.remote_key.assign(key.begin(), key.end());
  constexpr uint64_t kEnd = std::numeric_limits<uint64_t>::max() - kFrameStampBytes;
  if (location.address <= kFrameStampBytes || location.address > kEnd ||
      location.nbytes > kEnd - location.address) {
    return MakeError(Reason::kProtocol, StrCat("a location of ", location.nbytes, " bytes at 0x",
                                               absl::Hex(location.address), ", where none can be"));
  }
  return location;
}

}  // namespace tensorferry::wire
