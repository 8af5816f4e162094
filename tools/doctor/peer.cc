#include "tools/doctor/peer.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <system_error>

#include "tensorferry/base/error.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/base/net.h"
#include "tensorferry/base/text.h"
#include "tools/stock_worker.h"
#include "tools/worker_facts.h"

namespace tensorferry::tools {
namespace {

// 0 when something listens there; ETIMEDOUT when nothing answers at all.
int Connect(const SocketAddress& address, Duration timeout) {
  sockaddr_storage storage{};
  const socklen_t length = address.ToSockaddr(&storage);
  const UniqueFd fd(::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return errno;
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&storage), length) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
  pollfd connected{fd.get(), POLLOUT, 0};
  const int ready = ::poll(&connected, 1, static_cast<int>(std::min<int64_t>(ms, INT_MAX)));
  if (ready < 0) return errno;
  if (ready == 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof(error);
  return ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

}  // namespace

Peer AskPeer(const std::string& address, Duration timeout) {
  const absl::StatusOr<SocketAddress> resolved = Resolve(address, "--peer");
  if (!resolved.ok()) {
    return {.worker = resolved.status(),
            .evidence = StrCat("\"", address, "\" was looked up"),
            .fix = "give --peer as HOST:PORT, with a name that resolves here (getent hosts)"};
  }
  const std::string at = resolved->ToString();
  switch (const int error = Connect(*resolved, timeout)) {
    case 0:
      break;
    case ECONNREFUSED:
      return {.worker = MakeError(Reason::kUnreachable, StrCat("no worker listens at ", address)),
              .evidence = StrCat(at, " refuses connections"),
              .fix = "start the worker there, or correct --peer"};
    case ETIMEDOUT:
      return {.worker = MakeError(Reason::kTimedOut, StrCat("nothing answers at ", address)),
              .evidence = StrCat("no answer from ", at, " to a connection"),
              .fix =
                  "the host is down, or a firewall or network policy drops packets to that port: "
                  "open it from here to there, or correct --peer"};
    default:
      return {.worker = MakeError(Reason::kUnreachable, StrCat(address, " cannot be reached")),
              .evidence = StrCat(at, ": ", std::generic_category().message(error)),
              .fix = "check the route to that host (ip route get), or correct --peer"};
  }
  absl::StatusOr<Capabilities> worker = AskWorker(address, *resolved, timeout);
  std::string fix;
  if (!worker.ok()) {
    fix =
        "the process there is stopped, hangs, or is no gRPC worker: look at it, and then at "
        "--timeout";
  }
  return {.worker = std::move(worker),
          .evidence = StrCat(at, " takes connections"),
          .fix = std::move(fix)};
}

}  // namespace tensorferry::tools
