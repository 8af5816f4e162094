#include "tensorferry/engine/tcp/tcp_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "tensorferry/base/error.h"

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

}  // namespace tensorferry::engine
