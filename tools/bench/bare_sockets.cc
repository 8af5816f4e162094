#include "tools/bench/bare_sockets.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry::tools::bench {
namespace {

// What the server sends before it looks at its other connections.
constexpr size_t kPiece = 1 << 20;

struct Range {
  uint64_t offset = 0;
  uint64_t left = 0;
};

void Tune(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
}

// Null: only sleeps.
void Wait(std::vector<pollfd>& sockets, Spin* spin) {
  const Instant began = RealClock().Now();
  while (spin != nullptr && spin->Again(began)) {
    if (::poll(sockets.data(), sockets.size(), 0) != 0) return;
  }
  ::poll(sockets.data(), sockets.size(), -1);
}

bool Waits(ssize_t n) { return n < 0 && (errno == EAGAIN || errno == EINTR); }

struct Connection {
  UniqueFd fd;
  std::array<char, sizeof(Range)> request = {};
  size_t used = 0;
  Range range = {};

  // False: it has ended.
  bool Progress(std::span<const std::byte> memory) {
    if (range.left == 0) {
      const ssize_t n = ::recv(fd.get(), request.data() + used, request.size() - used, 0);
      if (n <= 0) return Waits(n);
      used += static_cast<size_t>(n);
      if (used < request.size()) return true;
      std::memcpy(&range, request.data(), sizeof(range));
      used = 0;
      if (range.offset > memory.size() || range.left > memory.size() - range.offset) return false;
    }
    const ssize_t n = ::send(fd.get(), memory.data() + range.offset,
                             std::min<uint64_t>(range.left, kPiece), MSG_NOSIGNAL);
    if (n < 0) return Waits(n);
    range.offset += static_cast<uint64_t>(n);
    range.left -= static_cast<uint64_t>(n);
    return true;
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<BareSocketServer>> BareSocketServer::Create(
    const std::string& host, std::span<const std::byte> memory, bool spins) {
  const absl::StatusOr<SocketAddress> wanted = SocketAddress::ParseHost(host, 0);
  if (!wanted.ok()) return wanted.status();
  absl::StatusOr<engine::TcpListener> listener = engine::ListenTcp(*wanted);
  if (!listener.ok()) return listener.status();
  std::unique_ptr<BareSocketServer> server(new BareSocketServer(*std::move(listener)));
  server->stop_.Reset(::eventfd(0, EFD_CLOEXEC));
  server->thread_ = std::thread(&BareSocketServer::Serve, server.get(), memory, spins);
  return server;
}

BareSocketServer::~BareSocketServer() {
  if (!thread_.joinable()) return;
  (void)::eventfd_write(stop_.get(), 1);
  thread_.join();
}

void BareSocketServer::Serve(std::span<const std::byte> memory, bool spins) const {
  Spin spin;
  constexpr size_t kFirst = 2;  // of the connections among what is waited for
  std::vector<pollfd> waits = {{stop_.get(), POLLIN, 0}, {listener_.socket.get(), POLLIN, 0}};
  std::vector<Connection> connections;
  for (;;) {
    Wait(waits, spins ? &spin : nullptr);
    if (waits[0].revents != 0) return;
    if (waits[1].revents != 0) {
      UniqueFd fd(::accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (fd) {
        Tune(fd.get());
        waits.push_back({fd.get(), POLLIN, 0});
        connections.push_back({.fd = std::move(fd)});
      }
    }
    for (size_t i = 0; i < connections.size();) {
      pollfd& wait = waits[kFirst + i];
      if (wait.revents != 0 && !connections[i].Progress(memory)) {
        connections.erase(connections.begin() + static_cast<ptrdiff_t>(i));
        waits.erase(waits.begin() + static_cast<ptrdiff_t>(kFirst + i));
        continue;
      }
      wait.events = connections[i].range.left > 0 ? POLLOUT : POLLIN;
      ++i;
    }
  }
}

absl::StatusOr<std::unique_ptr<BareSocketClient>> BareSocketClient::Connect(
    const SocketAddress& server, size_t connections, bool spins) {
  std::unique_ptr<BareSocketClient> client(new BareSocketClient(spins));
  sockaddr_storage storage = {};
  const socklen_t length = server.ToSockaddr(&storage);
  for (size_t i = 0; i < connections; ++i) {
    UniqueFd fd(::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd || ::connect(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0) {
      return SystemError(errno, StrCat("connecting to ", server.ToString()));
    }
    Tune(fd.get());
    client->sockets_.push_back({fd.get(), POLLIN, 0});
    client->fds_.push_back(std::move(fd));
  }
  return client;
}

absl::Status BareSocketClient::Pull(uint64_t offset, std::span<std::byte> into) {
  absl::Status closed = MakeError(Reason::kPeerClosed, "the bare socket's server has gone");
  const uint64_t share = (into.size() + sockets_.size() - 1) / sockets_.size();
  std::vector<Range> ranges;  // of `into`
  size_t live = 0;
  for (size_t i = 0; i < sockets_.size(); ++i) {
    const uint64_t begin = std::min<uint64_t>(into.size(), i * share);
    ranges.push_back({begin, std::min<uint64_t>(share, into.size() - begin)});
    if (ranges[i].left == 0) continue;
    const Range request = {offset + begin, ranges[i].left};
    if (::send(sockets_[i].fd, &request, sizeof(request), MSG_NOSIGNAL) != sizeof(request)) {
      return closed;
    }
    ++live;
  }
  while (live > 0) {
    Wait(sockets_, spins_ ? &spin_ : nullptr);
    for (size_t i = 0; i < sockets_.size(); ++i) {
      Range& range = ranges[i];
      if (sockets_[i].revents == 0 || range.left == 0) continue;
      const ssize_t n = ::recv(sockets_[i].fd, into.data() + range.offset, range.left, 0);
      if (n <= 0) {
        if (Waits(n)) continue;
        return closed;
      }
      range.offset += static_cast<uint64_t>(n);
      range.left -= static_cast<uint64_t>(n);
      if (range.left == 0) --live;
    }
  }
  return absl::OkStatus();
}

}  // namespace tensorferry::tools::bench
