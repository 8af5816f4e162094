#include "bench/bare_sockets.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tensorferry::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kSpin = std::chrono::microseconds(100);
constexpr size_t kPiece =
    1 << 20;  // what the server sends before it looks at its other connections

struct Range {
  uint64_t offset = 0;
  uint64_t left = 0;
};

void Require(bool condition, const char* what) {
  if (condition) return;
  std::perror(what);
  std::exit(1);
}

void Tune(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
}

void Wait(std::vector<pollfd>& sockets) {
  const Clock::time_point start = Clock::now();
  while (::poll(sockets.data(), sockets.size(), 0) == 0) {
    if (Clock::now() - start < kSpin) continue;
    ::poll(sockets.data(), sockets.size(), -1);
    return;
  }
}

}  // namespace

void ServeBareSockets(int listener, std::span<const std::byte> bytes) {
  struct Connection {
    std::array<char, sizeof(Range)> request;
    size_t used = 0;
    Range range;
  };
  std::vector<pollfd> sockets = {{listener, POLLIN, 0}};
  std::vector<Connection> connections(1);
  for (;;) {
    Wait(sockets);
    if (sockets[0].revents != 0) {
      const int fd = ::accept(listener, nullptr, nullptr);
      Require(fd >= 0, "accept");
      Tune(fd);
      sockets.push_back({fd, POLLIN, 0});
      connections.emplace_back();
    }
    for (size_t i = 1; i < sockets.size(); ++i) {
      if (sockets[i].revents == 0) continue;
      Connection& c = connections[i];
      const int fd = sockets[i].fd;
      if (c.range.left == 0) {
        const ssize_t n = ::recv(fd, c.request.data() + c.used, c.request.size() - c.used, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN)) {
          ::close(fd);
          sockets.erase(sockets.begin() + static_cast<ptrdiff_t>(i));
          connections.erase(connections.begin() + static_cast<ptrdiff_t>(i));
          --i;
          continue;
        }
        if (n > 0) c.used += static_cast<size_t>(n);
        if (c.used == c.request.size()) {
          std::memcpy(&c.range, c.request.data(), sizeof(c.range));
          c.used = 0;
        }
      }
      if (c.range.left > 0) {
        const ssize_t n = ::send(fd, bytes.data() + c.range.offset,
                                 std::min<uint64_t>(c.range.left, kPiece), MSG_NOSIGNAL);
        if (n > 0) {
          c.range.offset += static_cast<uint64_t>(n);
          c.range.left -= static_cast<uint64_t>(n);
        }
        sockets[i].events = c.range.left > 0 ? POLLOUT : POLLIN;
      }
    }
  }
}

BareSocketClient::BareSocketClient(const SocketAddress& server, int connections) {
  for (int i = 0; i < connections; ++i) {
    const int fd = ::socket(server.is_v6() ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_storage storage = {};
    const socklen_t length = server.ToSockaddr(&storage);
    Require(fd >= 0 && ::connect(fd, reinterpret_cast<sockaddr*>(&storage), length) == 0,
            "connect to the bare-socket server");
    Tune(fd);
    sockets_.push_back({fd, POLLIN, 0});
  }
}

BareSocketClient::~BareSocketClient() {
  for (const pollfd& socket : sockets_) ::close(socket.fd);
}

void BareSocketClient::Pull(uint64_t offset, std::span<std::byte> into) {
  const uint64_t share = (into.size() + sockets_.size() - 1) / sockets_.size();
  std::vector<Range> ranges;  // of `into`
  size_t live = 0;
  for (size_t i = 0; i < sockets_.size(); ++i) {
    const uint64_t begin = std::min<uint64_t>(into.size(), i * share);
    ranges.push_back({begin, std::min<uint64_t>(share, into.size() - begin)});
    if (ranges[i].left == 0) continue;
    const Range request = {offset + begin, ranges[i].left};
    Require(::send(sockets_[i].fd, &request, sizeof(request), MSG_NOSIGNAL) == sizeof(request),
            "send to the bare-socket server");
    ++live;
  }
  while (live > 0) {
    Wait(sockets_);
    for (size_t i = 0; i < sockets_.size(); ++i) {
      Range& range = ranges[i];
      if (sockets_[i].revents == 0 || range.left == 0) continue;
      const ssize_t n = ::recv(sockets_[i].fd, into.data() + range.offset, range.left, 0);
      Require(n != 0 && (n > 0 || errno == EAGAIN), "recv from the bare-socket server");
      if (n < 0) continue;
      range.offset += static_cast<uint64_t>(n);
      range.left -= static_cast<uint64_t>(n);
      if (range.left == 0) --live;
    }
  }
}

}  // namespace tensorferry::bench
