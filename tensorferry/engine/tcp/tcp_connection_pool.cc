#include "tensorferry/engine/tcp/tcp_connection_pool.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/tcp_socket.h"

namespace tensorferry::engine {
namespace {

// When the kernel gives up on a gateway that acknowledges nothing. A pull's own deadline usually
// comes first.
constexpr Duration kUnacknowledged = std::chrono::seconds(10);

// Nullopt while connect() is under way.
std::optional<int> ConnectError(int fd) {
  pollfd wait = {.fd = fd, .events = POLLOUT, .revents = 0};
  if (::poll(&wait, 1, 0) <= 0) return std::nullopt;
  int error = 0;
  socklen_t length = sizeof(error);
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  return error;
}

// An idle connection has nothing to say, but that it has ended.
bool Ended(int fd) {
  pollfd wait = {.fd = fd, .events = POLLIN | POLLRDHUP, .revents = 0};
  return ::poll(&wait, 1, 0) != 0;
}

}  // namespace

TcpConnection& TcpConnection::operator=(TcpConnection&& other) noexcept {
  if (this != &other) {
    Close();
    socket_ = std::move(other.socket_);
    gateway_ = other.gateway_;
    cached_ = other.cached_;
  }
  return *this;
}

void TcpConnection::Close() {
  if (socket_ == nullptr) return;
  // The gateway must learn of it now, even while somebody shares the descriptor.
  if (socket_.use_count() > 1) (void)::shutdown(socket_->get(), SHUT_RDWR);
  socket_.reset();
}

absl::StatusOr<std::optional<TcpConnection>> TcpConnectionPool::Get(const SocketAddress& address,
                                                                    bool fresh, Instant now,
                                                                    Dial* dial) {
  std::lock_guard lock(mutex_);
  Gateway& gateway = GatewayAt(address, now);
  if (dial->attempt_ != nullptr && dial->attempt_->settled) {
    // By another caller, who has its connection.
    const std::shared_ptr<Attempt> ended = std::exchange(dial->attempt_, nullptr);
    if (!ended->result.ok()) return ended->result;
  }
  if (dial->attempt_ == nullptr && !fresh && !gateway.idle.empty()) {
    // The one used last: its caches and windows are the warmest, and the others may age out.
    TcpConnection connection = std::move(gateway.idle.back());
    gateway.idle.pop_back();
    return connection;
  }
  if (dial->attempt_ == nullptr) dial->attempt_ = gateway.probe;
  if (dial->attempt_ == nullptr) {
    if (now < gateway.retry_at) {
      const auto ms = std::chrono::ceil<std::chrono::milliseconds>(gateway.retry_at - now).count();
      return MakeError(Reason::kUnreachable, StrCat(StdView(gateway.failure.message()),
                                                    "; not tried again for ", ms, " ms"));
    }
    absl::StatusOr<std::shared_ptr<Attempt>> attempt = Connect(address);
    if (!attempt.ok()) return attempt.status();
    (*attempt)->started = now;
    dial->attempt_ = *attempt;
    if (!gateway.answers) gateway.probe = *attempt;
  }

  Attempt& attempt = *dial->attempt_;
  dial->gives_up_ = SaturatingAdd(attempt.started, options_.connect_timeout);
  std::optional<int> error = attempt.error;
  if (error == 0) error = ConnectError(attempt.socket->get());
  const bool late = now >= dial->gives_up_;
  if (!error.has_value()) {
    if (!late) return std::nullopt;
    error = ETIMEDOUT;
  }
  const std::shared_ptr<Attempt> ended = std::exchange(dial->attempt_, nullptr);
  Settle(address, gateway, *ended, *error, now);
  if (!ended->result.ok()) return ended->result;
  // Nobody looked after it for long, so it lay idle.
  return TcpConnection(ended->socket, address, /*cached=*/late);
}

absl::StatusOr<std::shared_ptr<TcpConnectionPool::Attempt>> TcpConnectionPool::Connect(
    const SocketAddress& address) {
  absl::StatusOr<UniqueFd> fd = OpenTcpSocket(address.is_v6());
  if (!fd.ok()) return fd.status();
  auto attempt = std::make_shared<Attempt>();
  attempt->socket = std::make_shared<UniqueFd>(*std::move(fd));
  TuneTcpSocket(attempt->socket->get(), kUnacknowledged);
  sockaddr_storage storage = {};
  const socklen_t length = address.ToSockaddr(&storage);
  ++connects_;
  if (::connect(attempt->socket->get(), reinterpret_cast<sockaddr*>(&storage), length) != 0 &&
      errno != EINPROGRESS && errno != EINTR) {
    attempt->error = errno;
  }
  return attempt;
}

void TcpConnectionPool::Settle(const SocketAddress& address, Gateway& gateway, Attempt& attempt,
                               int error, Instant now) {
  attempt.settled = true;
  if (gateway.probe.get() == &attempt) gateway.probe.reset();
  gateway.answers = error == 0;
  if (error != 0) {
    attempt.result = MakeError(
        Reason::kUnreachable,
        StrCat("no connection to the gateway at ", address.ToString(), ": ", std::strerror(error)));
  }
  Count(options_.metrics, Metric::kHandshakes,
        {ProcessEnd::kWorker, LabelValue::Transport("tcp"), attempt.result});
  if (error == 0) {
    gateway.backoff = {};
    gateway.retry_at = Instant::min();
    return;
  }
  // Callers that connected side by side fail side by side: that is one failure.
  if (now < gateway.retry_at) return;
  gateway.backoff = std::clamp(2 * gateway.backoff, options_.backoff_min, options_.backoff_max);
  gateway.retry_at = SaturatingAdd(now, gateway.backoff);
  gateway.failure = attempt.result;
  Log(options_.log, LogLevel::kWarning,
      StrCat("engine/tcp: ", StdView(attempt.result.message()), "; next try in ",
             std::chrono::ceil<std::chrono::milliseconds>(gateway.backoff).count(), " ms"));
}

TcpConnectionPool::Gateway& TcpConnectionPool::GatewayAt(const SocketAddress& address,
                                                         Instant now) {
  if (auto found = gateways_.find(address); found != gateways_.end()) return found->second;
  // A new gateway is rare, and often an old one on a new port: time to forget those that are gone.
  for (auto it = gateways_.begin(); it != gateways_.end();) {
    Gateway& old = it->second;
    std::erase_if(old.idle, [](const TcpConnection& c) { return Ended(c.fd()); });
    const bool forget = old.idle.empty() && old.probe == nullptr && now >= old.retry_at;
    it = forget ? gateways_.erase(it) : std::next(it);
  }
  return gateways_[address];
}

void TcpConnectionPool::Put(TcpConnection connection) {
  std::lock_guard lock(mutex_);
  const auto found = gateways_.find(connection.gateway());
  if (found == gateways_.end()) return;
  std::vector<TcpConnection>& idle = found->second.idle;
  if (idle.size() >= options_.idle_connections) return;
  connection.cached_ = true;
  idle.push_back(std::move(connection));
}

void TcpConnectionPool::Distrust(const SocketAddress& gateway) {
  std::lock_guard lock(mutex_);
  const auto found = gateways_.find(gateway);
  if (found == gateways_.end()) return;
  found->second.idle.clear();
  found->second.answers = false;
}

bool TcpConnectionPool::Warm(const SocketAddress& gateway) const {
  std::lock_guard lock(mutex_);
  const auto found = gateways_.find(gateway);
  return found != gateways_.end() && !found->second.idle.empty();
}

uint64_t TcpConnectionPool::connects() const {
  std::lock_guard lock(mutex_);
  return connects_;
}

}  // namespace tensorferry::engine
