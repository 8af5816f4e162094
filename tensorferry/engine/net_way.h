// The addresses of ways over a network, of engines tcp, ucx and nixl: what a gateway names, and what of
// that a worker dials.
//
//   auto named = AdvertisedAddresses(options.advertise, bound);                       // gateway
//   auto usable = UsableAddresses(descriptor, wire::NetWay::Kind::kTcp, check_dial);  // worker
//
// Thread-safety: pure functions.
#ifndef TENSORFERRY_ENGINE_NET_WAY_H_
#define TENSORFERRY_ENGINE_NET_WAY_H_

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensorferry/base/net.h"
#include "tensorferry/wire/descriptor.h"

namespace tensorferry::engine {

// kBadAddress for a wildcard of which no address is advertised that a worker could dial.
absl::Status CheckListen(const SocketAddress& address, bool advertised);

// What descriptors carry: `advertise`, where port 0 stands for the bound one, or else `bound`.
// kBadAddress for more than a descriptor holds, and for what cannot be dialled.
absl::StatusOr<std::vector<SocketAddress>> AdvertisedAddresses(std::vector<SocketAddress> advertise,
                                                               const SocketAddress& bound);

// The addresses of the descriptor's ways of this kind that may be dialled, in order, at least one;
// or else why not the first of them, or kNoCommonWay where it has none.
absl::StatusOr<std::vector<SocketAddress>> UsableAddresses(
    const wire::Descriptor& descriptor, wire::NetWay::Kind kind,
    const std::function<absl::Status(const SocketAddress&)>& check_dial);

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_NET_WAY_H_
