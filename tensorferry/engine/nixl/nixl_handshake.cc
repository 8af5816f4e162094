#include "tensorferry/engine/nixl/nixl_handshake.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry::engine {

NixlHandshake::NixlHandshake(const SocketAddress& gateway, Instant deadline)
    : gateway_(gateway), deadline_(deadline), unsent_(wire::EncodeNixlMessage(wire::kNixlFetch)) {
  sockaddr_storage storage;
  const socklen_t length = gateway.ToSockaddr(&storage);
  socket_.Reset(::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_) {
    (void)Finish(SystemError(errno, "nixl: socket for the handshake"));
    return;
  }
  const linger reset{.l_onoff = 1, .l_linger = 0};
  (void)::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  const int on = 1;
  (void)::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&storage), length) != 0 &&
      errno != EINPROGRESS) {
    (void)Finish(
        MakeError(Reason::kUnreachable, StrCat("nixl: the gateway's listener at ",
                                               gateway_.ToString(), ": ", std::strerror(errno))));
  }
}

short NixlHandshake::events() const {
  return static_cast<short>(unsent_.empty() ? POLLIN : POLLOUT);
}

bool NixlHandshake::Finish(absl::StatusOr<std::string> result) {
  result_ = std::move(result);
  socket_.Reset();
  return true;
}

absl::StatusOr<std::string> NixlHandshake::TakeResult() { return *std::move(result_); }

bool NixlHandshake::Step(Instant now) {
  if (result_) return true;
  if (now >= deadline_) {
    return Finish(
        MakeError(Reason::kTimedOut, StrCat("nixl: the gateway's listener at ", gateway_.ToString(),
                                            connected_ ? " does not answer" : " cannot be reached",
                                            " in time; see whether it runs and the port is open")));
  }
  while (!unsent_.empty()) {
    const ssize_t n = ::send(socket_.get(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == ENOTCONN)) return false;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return Finish(MakeError(connected_ ? Reason::kPeerClosed : Reason::kUnreachable,
                              StrCat("nixl: the gateway's listener at ", gateway_.ToString(), ": ",
                                     std::strerror(errno))));
    }
    connected_ = true;
    unsent_.erase(0, static_cast<size_t>(n));
  }
  return Receive();
}

bool NixlHandshake::Receive() {
  std::array<char, 4096> buffer;
  while (true) {
    const ssize_t n = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EAGAIN) return false;
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return Finish(MakeError(Reason::kPeerClosed,
                              StrCat("nixl: the gateway's listener at ", gateway_.ToString(),
                                     " closed before it had answered",
                                     n < 0 ? StrCat(": ", std::strerror(errno)) : "")));
    }
    reader_.Append({buffer.data(), static_cast<size_t>(n)});
    absl::StatusOr<std::optional<std::string>> message = reader_.Next();
    if (!message.ok()) return Finish(message.status());
    if (!message->has_value()) continue;
    const absl::StatusOr<std::string_view> metadata = wire::MetadataOf(**message);
    if (!metadata.ok()) return Finish(metadata.status());
    return Finish(std::string(*metadata));
  }
}

}  // namespace tensorferry::engine
