#include "tensorferry/wire/local_messages.h"

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/wire/bytes.h"
#include "tensorferry/wire/magic.h"

namespace tensorferry::wire {
namespace {

constexpr std::string_view kWelcomeMagic = "TFW1";
constexpr std::string_view kReleaseMagic = "TFR1";

absl::Status CheckSize(std::span<const std::byte> bytes, size_t expected, std::string_view what) {
  if (bytes.size() == expected) return absl::OkStatus();
  return MakeError(Reason::kProtocol, StrCat(what, " of ", bytes.size(), " bytes, not ", expected));
}

}  // namespace

std::array<std::byte, kLocalWelcomeBytes> EncodeLocalWelcome(const LocalWelcome& w) {
  std::array<std::byte, kLocalWelcomeBytes> out;
  Writer to(out);
  to.Text(kWelcomeMagic);
  to.U16(w.status);
  to.Zeros(2);
  to.Bytes(w.instance);
  to.U64(w.arena_bytes);
  to.U64(w.table_entries);
  to.U64(w.max_claim_bytes);
  to.Zeros(16);
  return out;
}

absl::StatusOr<LocalWelcome> DecodeLocalWelcome(std::span<const std::byte> bytes) {
  Reader in(bytes);
  if (absl::Status s = CheckMagic(&in, kWelcomeMagic, "local welcome"); !s.ok()) return s;
  if (absl::Status s = CheckSize(bytes, kLocalWelcomeBytes, "local welcome"); !s.ok()) return s;
  LocalWelcome w;
  w.status = in.U16();
  bool padded = in.Zeros(2);
  w.instance = in.Array16();
  w.arena_bytes = in.U64();
  w.table_entries = in.U64();
  w.max_claim_bytes = in.U64();
  padded &= in.Zeros(16);
  if (!padded) return MakeError(Reason::kProtocol, "local welcome: its padding is not zero");
  return w;
}

std::array<std::byte, kLocalReleaseBytes> EncodeLocalRelease(const LocalRelease& r) {
  std::array<std::byte, kLocalReleaseBytes> out;
  Writer to(out);
  to.Text(kReleaseMagic);
  to.Zeros(4);
  to.U64(r.lease.id);
  to.U64(r.lease.generation);
  to.Bytes(r.lease.token);
  to.Zeros(8);
  return out;
}

absl::StatusOr<LocalRelease> DecodeLocalRelease(std::span<const std::byte> bytes) {
  Reader in(bytes);
  if (absl::Status s = CheckMagic(&in, kReleaseMagic, "local release"); !s.ok()) return s;
  if (absl::Status s = CheckSize(bytes, kLocalReleaseBytes, "local release"); !s.ok()) return s;
  LocalRelease r;
  bool padded = in.Zeros(4);
  r.lease.id = in.U64();
  r.lease.generation = in.U64();
  r.lease.token = in.Array16();
  padded &= in.Zeros(8);
  if (!padded) return MakeError(Reason::kProtocol, "local release: its padding is not zero");
  return r;
}

}  // namespace tensorferry::wire
