#include "tensorferry/engine/nixl/nixl_listener.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "tensorferry/engine/tcp_socket.h"

namespace tensorferry::engine {
namespace {

constexpr size_t kMaxConnections = 256;
constexpr Duration kUnacknowledged = std::chrono::seconds(10);

}  // namespace

absl::StatusOr<std::unique_ptr<NixlListener>> NixlListener::Create(const SocketAddress& address) {
  absl::StatusOr<TcpListener> listener = ListenTcp(address);
  if (!listener.ok()) return listener.status();
  return std::unique_ptr<NixlListener>(
      new NixlListener(std::move(listener->socket), listener->address));
}

void NixlListener::AddWaits(std::vector<pollfd>* waits) const {
  waits->push_back({socket_.get(), POLLIN, 0});
  for (const Connection& c : connections_) {
    waits->push_back({c.socket.get(), static_cast<short>(c.unsent.empty() ? POLLIN : POLLOUT), 0});
  }
}

void NixlListener::Step(std::string_view metadata) {
  Accept();
  for (auto it = connections_.begin(); it != connections_.end();) {
    const auto next = std::next(it);
    const uint64_t before = it->unanswered;
    if (!Serve(*it, metadata)) {
      connections_.erase(it);
    } else if (it->unanswered != before) {
      connections_.splice(connections_.end(), connections_, it);
    }
    it = next;
  }
}

void NixlListener::Accept() {
  while (true) {
    UniqueFd socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      // Out of descriptors: one that has been quiet the longest gives its own.
      if ((errno == EMFILE || errno == ENFILE) && !connections_.empty()) {
        connections_.pop_front();
        continue;
      }
      return;
    }
    TuneTcpSocket(socket.get(), kUnacknowledged);
    if (connections_.size() >= kMaxConnections) connections_.pop_front();
    connections_.push_back({.socket = std::move(socket), .reader = {}, .unsent = {}});
  }
}

bool NixlListener::Serve(Connection& c, std::string_view metadata) {
  std::array<char, 4096> buffer;
  while (true) {
    const ssize_t n = ::recv(c.socket.get(), buffer.data(), buffer.size(), 0);
    if (n == 0) return false;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) return false;
    if (n < 0) break;
    c.reader.Append({buffer.data(), static_cast<size_t>(n)});
    while (true) {
      const absl::StatusOr<std::optional<std::string>> message = c.reader.Next();
      if (!message.ok()) return false;
      if (!message->has_value()) break;
      // Metadata and farewells of readers are of no use here.
      if (**message == wire::kNixlFetch) ++c.unanswered;
    }
  }
  for (; c.unanswered > 0 && !metadata.empty() && c.unsent.size() < wire::kMaxNixlMessageBytes;
       --c.unanswered) {
    c.unsent += wire::EncodeNixlMetadata(metadata);
    ++answered_;
  }
  while (!c.unsent.empty()) {
    const ssize_t n = ::send(c.socket.get(), c.unsent.data(), c.unsent.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    c.unsent.erase(0, static_cast<size_t>(n));
  }
  return true;
}

}  // namespace tensorferry::engine
