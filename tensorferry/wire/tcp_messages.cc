#include "tensorferry/wire/tcp_messages.h"

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/wire/bytes.h"
#include "tensorferry/wire/magic.h"

namespace tensorferry::wire {
namespace {

constexpr std::string_view kRequestMagic = "TFQ1";
constexpr std::string_view kAnswerMagic = "TFA1";

}  // namespace

std::array<std::byte, kTcpRequestBytes> EncodeTcpRequest(const TcpRequest& r) {
  std::array<std::byte, kTcpRequestBytes> out;
  Writer to(out);
  to.Text(kRequestMagic);
  to.U16(static_cast<uint16_t>(r.kind));
  to.Zeros(2);
  to.U64(r.request);
  to.Bytes(r.instance);
  to.U64(r.lease.id);
  to.U64(r.lease.generation);
  to.Bytes(r.lease.token);
  to.U64(r.offset);
  to.U64(r.length);
  to.U32(r.deadline_ms);
  to.Zeros(12);
  return out;
}

absl::StatusOr<TcpRequest> DecodeTcpRequest(std::span<const std::byte, kTcpRequestBytes> bytes) {
  Reader in(bytes);
  if (absl::Status s = CheckMagic(&in, kRequestMagic, "tcp request"); !s.ok()) return s;
  TcpRequest r;
  const uint16_t kind = in.U16();
  bool padded = in.Zeros(2);
  r.request = in.U64();
  r.instance = in.Array16();
  r.lease.id = in.U64();
  r.lease.generation = in.U64();
  r.lease.token = in.Array16();
  r.offset = in.U64();
  r.length = in.U64();
  r.deadline_ms = in.U32();
  padded &= in.Zeros(12);
  r.kind = static_cast<TcpRequest::Kind>(kind);
  if (kind < static_cast<uint16_t>(TcpRequest::Kind::kRead) ||
      kind > static_cast<uint16_t>(TcpRequest::Kind::kLocate)) {
    return MakeError(Reason::kProtocol, StrCat("tcp request of unknown kind ", kind));
  }
  if (!padded) return MakeError(Reason::kProtocol, "tcp request: its padding is not zero");
  return r;
}

std::array<std::byte, kTcpAnswerBytes> EncodeTcpAnswer(const TcpAnswer& a) {
  std::array<std::byte, kTcpAnswerBytes> out;
  Writer to(out);
  to.Text(kAnswerMagic);
  to.U16(a.status);
  to.Zeros(2);
  to.U64(a.request);
  to.U64(a.length);
  to.Zeros(8);
  return out;
}

absl::StatusOr<TcpAnswer> DecodeTcpAnswer(std::span<const std::byte, kTcpAnswerBytes> bytes) {
  Reader in(bytes);
  if (absl::Status s = CheckMagic(&in, kAnswerMagic, "tcp answer"); !s.ok()) return s;
  TcpAnswer a;
  a.status = in.U16();
  bool padded = in.Zeros(2);
  a.request = in.U64();
  a.length = in.U64();
  padded &= in.Zeros(8);
  if (!padded) return MakeError(Reason::kProtocol, "tcp answer: its padding is not zero");
  if (a.status != 0 && a.length != 0) {
    return MakeError(Reason::kProtocol, StrCat("tcp answer: refused with status ", a.status,
                                               ", yet ", a.length, " bytes follow"));
  }
  return a;
}

}  // namespace tensorferry::wire
