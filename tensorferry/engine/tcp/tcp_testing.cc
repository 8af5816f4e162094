#include "tensorferry/engine/tcp/tcp_testing.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace tensorferry::engine {
namespace {

void Require(bool condition, const char* what) {
  if (condition) return;
  std::perror(what);
  std::abort();
}

UniqueFd Socket(const SocketAddress& address, int flags = 0) {
  UniqueFd fd(
      ::socket(address.is_v6() ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  Require(static_cast<bool>(fd), "socket");
  return fd;
}

// Binds, and returns the address with its port.
SocketAddress Bind(int fd, const SocketAddress& address) {
  sockaddr_storage storage = {};
  socklen_t length = address.ToSockaddr(&storage);
  Require(::bind(fd, reinterpret_cast<sockaddr*>(&storage), length) == 0, "bind");
  Require(::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) == 0, "getsockname");
  return *SocketAddress::FromSockaddr(storage);
}

bool Connect(int fd, const SocketAddress& address) {
  sockaddr_storage storage = {};
  const socklen_t length = address.ToSockaddr(&storage);
  return ::connect(fd, reinterpret_cast<sockaddr*>(&storage), length) == 0;
}

}  // namespace

SocketAddress AnyLoopbackPort() { return *SocketAddress::ParseHost("127.0.0.1", 0); }
SocketAddress AnyLoopbackPortV6() { return *SocketAddress::ParseHost("::1", 0); }

RawConnection::RawConnection(UniqueFd fd) : fd_(std::move(fd)) {
  const timeval limit = {
      .tv_sec = std::chrono::duration_cast<std::chrono::seconds>(kTestLimit).count(), .tv_usec = 0};
  const int on = 1;
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

RawConnection RawConnection::To(const SocketAddress& address) {
  RawConnection connection(Socket(address));
  Require(Connect(connection.fd(), address), "connect");
  return connection;
}

bool RawConnection::Send(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return true;
}

size_t RawConnection::SendSome(std::span<const std::byte> bytes) {
  const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return n < 0 ? 0 : static_cast<size_t>(n);
}

std::vector<std::byte> RawConnection::Read(size_t count) {
  std::vector<std::byte> out(count);
  size_t used = 0;
  while (used < count) {
    const ssize_t n = ::recv(fd_.get(), out.data() + used, count - used, 0);
    if (n <= 0) break;
    used += static_cast<size_t>(n);
  }
  out.resize(used);
  return out;
}

std::optional<wire::TcpAnswer> RawConnection::ReadAnswer() {
  const std::vector<std::byte> bytes = Read(wire::kTcpAnswerBytes);
  if (bytes.size() < wire::kTcpAnswerBytes) return std::nullopt;
  const auto answer = wire::DecodeTcpAnswer(std::span(bytes).first<wire::kTcpAnswerBytes>());
  return answer.ok() ? std::optional(*answer) : std::nullopt;
}

std::optional<wire::TcpRequest> RawConnection::ReadRequest() {
  const std::vector<std::byte> bytes = Read(wire::kTcpRequestBytes);
  if (bytes.size() < wire::kTcpRequestBytes) return std::nullopt;
  const auto request = wire::DecodeTcpRequest(std::span(bytes).first<wire::kTcpRequestBytes>());
  return request.ok() ? std::optional(*request) : std::nullopt;
}

bool RawConnection::ReadsEnd() {
  std::vector<std::byte> sink(1 << 16);
  for (;;) {
    const ssize_t n = ::recv(fd_.get(), sink.data(), sink.size(), 0);
    if (n == 0 || (n < 0 && errno == ECONNRESET)) return true;
    if (n < 0) return false;
  }
}

Listener::Listener(Unopened, const SocketAddress& address) : fd_(Socket(address)) {
  const int on = 1;
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  address_ = Bind(fd_.get(), address);
}

Listener::Listener(const SocketAddress& address, int backlog) : Listener(Unopened(), address) {
  Listen(backlog);
}

Listener Listener::Closed() { return Listener(Unopened(), AnyLoopbackPort()); }

void Listener::Listen(int backlog) { Require(::listen(fd_.get(), backlog) == 0, "listen"); }

RawConnection Listener::Accept() {
  pollfd wait = {.fd = fd_.get(), .events = POLLIN, .revents = 0};
  const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(kTestLimit).count();
  Require(::poll(&wait, 1, static_cast<int>(limit)) == 1, "nobody connects");
  UniqueFd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  Require(static_cast<bool>(fd), "accept");
  return RawConnection(std::move(fd));
}

bool Listener::Untouched() const {
  pollfd wait = {.fd = fd_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&wait, 1, 0) == 0;
}

BlackHole::BlackHole() : listener_(AnyLoopbackPort(), 0) {
  // Once the queue of a listener that accepts nothing is full, the kernel drops further SYNs.
  for (int i = 0; i < 16; ++i) {
    fillers_.push_back(Socket(address(), SOCK_NONBLOCK));
    Connect(fillers_.back().get(), address());
    pollfd wait = {.fd = fillers_.back().get(), .events = POLLOUT, .revents = 0};
    if (::poll(&wait, 1, 100) == 0) {
      fillers_.pop_back();
      return;
    }
  }
  Require(false, "the listener's queue does not fill");
}

void BlackHole::Open() {
  for (size_t i = 0; i < fillers_.size(); ++i) (void)listener_.Accept();
  fillers_.clear();
}

ScriptedGateway::ScriptedGateway(Script script) {
  thread_ = std::thread([this, script = std::move(script)] {
    for (int nth = 0;; ++nth) {
      UniqueFd fd(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!fd) return;
      ++connections_;
      RawConnection connection(std::move(fd));
      script(connection, nth);
    }
  });
}

ScriptedGateway::~ScriptedGateway() {
  ::shutdown(listener_.fd(), SHUT_RDWR);  // ends accept
  thread_.join();
}

void AnswerWith(RawConnection& connection, const wire::TcpRequest& request,
                std::span<const std::byte> payload) {
  connection.Send(wire::EncodeTcpAnswer({.request = request.request, .length = payload.size()}));
  connection.Send(payload);
}

}  // namespace tensorferry::engine
