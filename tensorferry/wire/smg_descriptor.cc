#include "tensorferry/wire/smg_descriptor.h"

#include <limits>
#include <string_view>

#include "absl/strings/escaping.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/net.h"
#include "tensorferry/base/text.h"
#include "tensorferry/wire/bytes.h"
#include "tensorferry/wire/frame.h"
#include "tensorferry/wire/utf8.h"

namespace tensorferry::wire {
namespace {

constexpr size_t kFixedBytes = 34;
constexpr size_t kLegacyFixedBytes = 18;

absl::Status TooShort(std::string_view kind, size_t size, size_t least) {
  return MakeError(Reason::kTooShort,
                   StrCat(kind, " descriptor of ", size, " bytes: it has at least ", least));
}

}  // namespace

absl::StatusOr<SmgDescriptor> ParseSmgDescriptor(std::span<const std::byte> bytes,
                                                 std::optional<int64_t> explicit_key) {
  const std::string_view text = AsText(bytes);
  SmgDescriptor d;
  d.legacy = !text.starts_with(kSmgMagic);
  d.near_magic = d.legacy && text.starts_with(kSmgMagicFamily);
  Reader in(bytes);
  if (d.legacy) {
    if (!explicit_key) {
      return MakeError(
          Reason::kLegacyNeedsKey,
          d.near_magic
              ? StrCat("descriptor begins with ", absl::CHexEscape(AbslView(text.substr(0, 8))),
                       ", a version that is not known here, and no key was given")
              : "descriptor without magic: only readable where the caller knows its key");
    }
    if (bytes.size() < kLegacyFixedBytes) {
      return TooShort("legacy", bytes.size(), kLegacyFixedBytes);
    }
    d.slot_addr = in.U64();
    d.gen = in.U64();
    d.key = *explicit_key;
  } else {
    if (bytes.size() < kFixedBytes) return TooShort(kSmgMagic, bytes.size(), kFixedBytes);
    in.Take(kSmgMagic.size());
    d.slot_addr = in.U64();
    d.gen = in.U64();
    d.key = in.I64();
  }
  d.port = in.U16();
  d.host = AsText(in.Rest());
  if (!IsUtf8(d.host)) {
    return MakeError(Reason::kBadIpText,
                     StrCat("descriptor's host \"", absl::CHexEscape(d.host), "\" is not UTF-8"));
  }
  if (explicit_key && *explicit_key != d.key) {
    return MakeError(Reason::kKeyMismatch, StrCat("descriptor is for key ", d.key,
                                                  ", the request for key ", *explicit_key));
  }
  return d;
}

absl::Status CheckUsable(const SmgDescriptor& d, uint64_t nbytes) {
  if (d.near_magic) {
    // Read as legacy, so that the magic is where the address would be.
    const char version = static_cast<char>(d.slot_addr >> 56);
    return MakeError(Reason::kUnknownMagic,
                     StrCat("descriptor begins with ", kSmgMagicFamily,
                            absl::CHexEscape(absl::string_view(&version, 1)),
                            "; the version that is known here is ", kSmgMagic));
  }
  const auto address = SocketAddress::ParseHost(d.host, d.port);
  if (!address.ok()) return Annotate(address.status(), "descriptor's host");
  if (absl::Status s = address->CheckDialable(); !s.ok()) return Annotate(s, "descriptor's host");
  if (d.gen == 0) return MakeError(Reason::kBadGeneration, "descriptor's generation is 0");
  if (d.slot_addr == 0) return MakeError(Reason::kBadDescriptor, "descriptor's slot address is 0");
  const absl::StatusOr<uint64_t> frame = FrameBytes(nbytes);
  if (!frame.ok()) return frame.status();
  if (*frame > std::numeric_limits<uint64_t>::max() - d.slot_addr) {
    return MakeError(Reason::kBadDescriptor,
                     StrCat("slot at 0x", absl::Hex(d.slot_addr), " with a frame of ", *frame,
                            " bytes reaches beyond 2^64"));
  }
  return absl::OkStatus();
}

std::string EncodeSmgDescriptor(const SmgDescriptor& d) {
  std::string out(kFixedBytes + d.host.size(), '\0');
  Writer to(std::as_writable_bytes(std::span(out)));
  to.Text(kSmgMagic);
  to.U64(d.slot_addr);
  to.U64(d.gen);
  to.I64(d.key);
  to.U16(d.port);
  to.Text(d.host);
  return out;
}

std::string SmgDescriptorText(const SmgDescriptor& d) {
  return StrCat(d.legacy ? "SMG descriptor, legacy (without magic)" : "SMG descriptor, SMGRDMA1",
                "\nslot_addr   0x", absl::Hex(d.slot_addr),  //
                "\ngeneration  ", d.gen,                     //
                "\nkey         ", d.key,                     //
                "\nlistener    ", absl::CHexEscape(d.host), " port ", d.port, "\n");
}

}  // namespace tensorferry::wire
