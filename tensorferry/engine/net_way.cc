#include "tensorferry/engine/net_way.h"

#include <utility>
#include <variant>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry::engine {
namespace {

constexpr size_t kMaxAdvertised = 8;

}  // namespace

absl::Status CheckListen(const SocketAddress& address, bool advertised) {
  if (!address.IsWildcard() || advertised) return absl::OkStatus();
  return MakeError(Reason::kBadAddress,
                   StrCat("cannot listen on ", address.ToString(),
                          " alone: a wildcard is no address that a worker can dial; name "
                          "one, or set `advertise`"));
}

absl::StatusOr<std::vector<SocketAddress>> AdvertisedAddresses(std::vector<SocketAddress> advertise,
                                                               const SocketAddress& bound) {
  if (advertise.empty()) advertise.push_back(bound);
  if (advertise.size() > kMaxAdvertised) {
    return MakeError(Reason::kBadAddress,
                     StrCat("`advertise` names ", advertise.size(),
                            " addresses; a descriptor holds at most ", kMaxAdvertised));
  }
  for (SocketAddress& address : advertise) {
    if (address.port() == 0) address.set_port(bound.port());
    if (absl::Status s = address.CheckDialable(); !s.ok()) return s;
  }
  return advertise;
}

absl::StatusOr<std::vector<SocketAddress>> UsableAddresses(
    const wire::Descriptor& descriptor, wire::NetWay::Kind kind,
    const std::function<absl::Status(const SocketAddress&)>& check_dial) {
  std::vector<SocketAddress> usable;
  absl::Status why;
  for (const wire::Way& way : descriptor.ways) {
    const auto* net = std::get_if<wire::NetWay>(&way);
    if (net == nullptr || net->kind != kind) continue;
    for (const SocketAddress& address : net->addresses) {
      absl::Status status = check_dial(address);
      if (status.ok()) {
        usable.push_back(address);
      } else if (why.ok()) {
        why = std::move(status);
      }
    }
  }
  if (!usable.empty()) return usable;
  if (!why.ok()) return why;
  return MakeError(Reason::kNoCommonWay,
                   StrCat("the descriptor offers no way over ",
                          wire::TransportOf(wire::NetWay{.kind = kind, .addresses = {}})));
}

}  // namespace tensorferry::engine
