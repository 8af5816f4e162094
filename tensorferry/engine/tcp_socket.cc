#include "tensorferry/engine/tcp_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry::engine {
namespace {

void SetInt(int fd, int level, int option, int value) {
  // All of these only tune: a kernel that lacks one still carries the bytes.
  (void)::setsockopt(fd, level, option, &value, sizeof(value));
}

}  // namespace

absl::StatusOr<UniqueFd> OpenTcpSocket(bool v6) {
  UniqueFd fd(
      ::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!fd) {
    return SystemError(errno, v6 ? "cannot open an IPv6 socket (see ulimit -n)"
                                 : "cannot open an IPv4 socket (see ulimit -n)");
  }
  return fd;
}

void TuneTcpSocket(int fd, Duration unacknowledged) {
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(unacknowledged).count();
  const int user_timeout =
      static_cast<int>(std::clamp<int64_t>(ms, 1, std::numeric_limits<int>::max()));
  SetInt(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetInt(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetInt(fd, IPPROTO_TCP, TCP_KEEPIDLE, 30);
  SetInt(fd, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  SetInt(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  SetInt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, user_timeout);
}

absl::StatusOr<TcpListener> ListenTcp(const SocketAddress& address) {
  constexpr int kBacklog = 1024;
  const std::string text = address.ToString();
  absl::StatusOr<UniqueFd> socket = OpenTcpSocket(address.is_v6());
  if (!socket.ok()) return socket.status();
  const int on = 1;
  (void)::setsockopt(socket->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.is_v6()) {
    const int v6_only = address.IsWildcard() ? 0 : 1;
    (void)::setsockopt(socket->get(), IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof(v6_only));
  }
  sockaddr_storage storage = {};
  socklen_t length = address.ToSockaddr(&storage);
  if (::bind(socket->get(), reinterpret_cast<sockaddr*>(&storage), length) != 0 ||
      ::listen(socket->get(), kBacklog) != 0) {
    const int error = errno;
    if (error == EADDRNOTAVAIL || error == EINVAL) {
      return MakeError(Reason::kBadAddress,
                       StrCat("cannot listen on ", text, ": not an address of this host"));
    }
    return SystemError(error, StrCat("cannot listen on ", text,
                                     error == EADDRINUSE ? " (port 0 picks a free one)" : ""));
  }
  length = sizeof(storage);
  if (::getsockname(socket->get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    return SystemError(errno, StrCat("getsockname of ", text));
  }
  absl::StatusOr<SocketAddress> bound = SocketAddress::FromSockaddr(storage);
  if (!bound.ok()) return bound.status();
  return TcpListener{.socket = *std::move(socket), .address = *bound};
}

}  // namespace tensorferry::engine
