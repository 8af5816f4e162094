// Which user a program on this host runs as, by the port that it listens on.
//
//   std::optional<uint32_t> uid = ListeningUid(*SocketAddress::Parse("127.0.0.1:50051"));
//   if (uid) worker.host.uid = uid;                 // of a stock worker, which does not say it
//
// The kernel lists the owners of all listening sockets in /proc/net. What is behind a forwarded
// port, such as one that a container publishes, is not seen: the forwarder is.
// Thread-safety: a pure function but for reads of /proc.
#ifndef TENSORFERRY_BASE_SOCKET_OWNER_H_
#define TENSORFERRY_BASE_SOCKET_OWNER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "tensorferry/base/export.h"
#include "tensorferry/base/net.h"

namespace tensorferry {

// None when the address is not one of this host, nothing listens there, or it cannot be told.
// `proc_net` holds the files tcp and tcp6; another one is for tests.
TENSORFERRY_EXPORT std::optional<uint32_t> ListeningUid(const SocketAddress& address,
                                                        const std::string& proc_net = "/proc/net");

}  // namespace tensorferry

#endif  // TENSORFERRY_BASE_SOCKET_OWNER_H_
