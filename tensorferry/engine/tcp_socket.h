// What this library asks of a stream socket.
//
//   absl::StatusOr<UniqueFd> fd = OpenTcpSocket(address.is_v6());
//   TuneTcpSocket(fd->get(), std::chrono::seconds(10));
//
// Thread-safety: pure functions.
#ifndef TENSORFERRY_ENGINE_TCP_SOCKET_H_
#define TENSORFERRY_ENGINE_TCP_SOCKET_H_

#include "absl/status/statusor.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/export.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/base/net.h"

namespace tensorferry::engine {

// Non-blocking and closed on exec. kNoMemory at a limit of descriptors.
absl::StatusOr<UniqueFd> OpenTcpSocket(bool v6);

// Small messages leave at once; a peer that vanished without a word is noticed: after about a
// minute on a quiet connection, after `unacknowledged` when data of ours is not taken.
void TuneTcpSocket(int fd, Duration unacknowledged);

struct TcpListener {
  UniqueFd socket;
  SocketAddress address;  // the bound one
};

// Listens on this address only; port 0 picks one. A restarted process takes its port back while old
// connections still linger. kAddressInUse, kBadAddress when the address is none of this host's.
TENSORFERRY_EXPORT absl::StatusOr<TcpListener> ListenTcp(const SocketAddress& address);

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_TCP_SOCKET_H_
