#include "tensorferry/puller/handle.h"

#include <span>
#include <utility>

#include "absl/strings/escaping.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry {
namespace {

// A legacy descriptor of SMG starts with an address, which cannot look like this.
bool LooksLikeOurs(std::string_view bytes) { return bytes.starts_with(wire::kDescriptorMagic); }

absl::StatusOr<wire::Descriptor> DecodeSmg(const Handle& handle, std::optional<int64_t> key) {
  const auto bytes = std::as_bytes(std::span(handle.descriptor.data(), handle.descriptor.size()));
  const bool has_own_key = handle.descriptor.starts_with(wire::kSmgMagic);
  absl::StatusOr<wire::SmgDescriptor> smg =
      wire::ParseSmgDescriptor(bytes, has_own_key ? std::nullopt : key);
  if (!smg.ok()) return smg.status();
  wire::Descriptor d;
  d.lease.generation = smg->gen;
  d.key = smg->key;
  d.nbytes = handle.nbytes;
  d.wants_done = true;
  d.ways.emplace_back(*std::move(smg));
  return d;
}

}  // namespace

absl::StatusOr<wire::Descriptor> DecodeHandle(const Handle& handle, std::optional<int64_t> key) {
  const std::string& transport = handle.transport;
  if (transport == "nixl" || (transport.empty() && !LooksLikeOurs(handle.descriptor))) {
    return DecodeSmg(handle, key);
  }
  if (transport == "file") {
    wire::Descriptor d;
    d.key = key.value_or(0);  // a file has none that it could be compared with
    d.nbytes = handle.nbytes;
    d.ways.emplace_back(wire::FileWay{.name = handle.descriptor, .offset = handle.offset});
    return d;
  }
  if (!transport.empty() && transport != "tensorferry") {
    return MakeError(Reason::kUnknownTransport,
                     StrCat("a handle of transport \"", absl::CHexEscape(transport),
                            "\" cannot be pulled here; \"tensorferry\" and \"nixl\" can"));
  }
  absl::StatusOr<wire::Descriptor> decoded = wire::DecodeDescriptor(
      std::as_bytes(std::span(handle.descriptor.data(), handle.descriptor.size())));
  if (decoded.ok() && decoded->nbytes != handle.nbytes) {
    return MakeError(Reason::kSizeMismatch, StrCat("the handle says ", handle.nbytes,
                                                   " bytes, its descriptor ", decoded->nbytes));
  }
  return decoded;
}

}  // namespace tensorferry
