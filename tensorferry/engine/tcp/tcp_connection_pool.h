// The connections of one tcp pull engine, per gateway address: idle ones, and the making of new
// ones.
//
//   TcpConnectionPool::Dial dial;
//   auto got = pool.Get(gateway, /*fresh=*/false, now, &dial);
//   if (!got.ok()) ...;              // kUnreachable, perhaps remembered from another pull
//   if (!got->has_value()) ...;      // poll dial.fd() for POLLOUT until dial.gives_up(), call
//   again
//   ... one exchange on **got ...
//   pool.Put(*std::move(*got));      // or let it go: that closes it
//
// While a gateway is not known to answer, everybody waits for one and the same connect(): whoever
// looks first after it has ended takes its connection, and its failure is everybody's, then and
// until the back-off has passed. Nobody depends on the thread that began it. Once it answers, each
// caller connects for itself. Time is a parameter.
// Thread-safety: everything from any thread; a Dial belongs to one caller.
#ifndef TENSORFERRY_ENGINE_TCP_TCP_CONNECTION_POOL_H_
#define TENSORFERRY_ENGINE_TCP_TCP_CONNECTION_POOL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/base/log.h"
#include "tensorferry/base/net.h"
#include "tensorferry/metrics/metrics.h"

namespace tensorferry::engine {

// An open connection. Closes when destroyed.
class TcpConnection {
 public:
  TcpConnection() = default;
  TcpConnection(std::shared_ptr<UniqueFd> socket, const SocketAddress& gateway, bool cached)
      : socket_(std::move(socket)), gateway_(gateway), cached_(cached) {}
  TcpConnection(TcpConnection&&) = default;
  TcpConnection& operator=(TcpConnection&& other) noexcept;
  ~TcpConnection() { Close(); }

  explicit operator bool() const { return socket_ != nullptr; }
  int fd() const { return socket_->get(); }
  const SocketAddress& gateway() const { return gateway_; }
  // Lay idle before: the gateway may have gone since.
  bool cached() const { return cached_; }
  void Close();

 private:
  friend class TcpConnectionPool;
  // Shared with those who still poll it for the end of its connect(), so that its number is not
  // reused.
  std::shared_ptr<UniqueFd> socket_;
  SocketAddress gateway_;
  bool cached_ = false;
};

class TcpConnectionPool {
 public:
  struct Options {
    uint32_t idle_connections = 8;  // per gateway address
    Duration connect_timeout = std::chrono::seconds(2);
    Duration backoff_min = std::chrono::milliseconds(100);
    Duration backoff_max = std::chrono::seconds(5);
    LogSink log = {};
    std::shared_ptr<Metrics> metrics = {};
  };

  class Dial;

  explicit TcpConnectionPool(const Options& options) : options_(options) {}

  // A connection, or nullopt while one is being made. `fresh`: not one that lay idle.
  absl::StatusOr<std::optional<TcpConnection>> Get(const SocketAddress& address, bool fresh,
                                                   Instant now, Dial* dial);
  // Nothing is under way on it.
  void Put(TcpConnection connection);
  // A connection to it turned out dead: so may be the idle ones, and the gateway.
  void Distrust(const SocketAddress& gateway);
  // A dead connection is about to be replaced.
  void CountReconnect() const {
    Count(options_.metrics, Metric::kReconnects, {LabelValue::Transport("tcp")});
  }
  // Has an idle connection.
  bool Warm(const SocketAddress& gateway) const;

  // connect() calls since the start.
  uint64_t connects() const;

 private:
  struct Attempt {
    std::shared_ptr<UniqueFd> socket;
    Instant started;
    int error = 0;  // of connect(), where it failed at once
    bool settled = false;
    absl::Status result;  // once settled
  };
  struct Gateway {
    std::vector<TcpConnection> idle;
    bool answers = false;            // the last attempt succeeded
    std::shared_ptr<Attempt> probe;  // the attempt that everybody waits for, unless it answers
    Duration backoff = {};
    Instant retry_at = Instant::min();
    absl::Status failure;  // until retry_at
  };

  absl::StatusOr<std::shared_ptr<Attempt>> Connect(const SocketAddress& address);
  void Settle(const SocketAddress& address, Gateway& gateway, Attempt& attempt, int error,
              Instant now);
  Gateway& GatewayAt(const SocketAddress& address, Instant now);

  const Options options_;
  mutable std::mutex mutex_;
  std::map<SocketAddress, Gateway> gateways_;
  uint64_t connects_ = 0;
};

// What one caller of Get waits for.
class TcpConnectionPool::Dial {
 public:
  // -1 when nothing is waited for.
  int fd() const { return attempt_ == nullptr ? -1 : attempt_->socket->get(); }
  Instant gives_up() const { return gives_up_; }
  void Reset() { attempt_.reset(); }

 private:
  friend class TcpConnectionPool;
  std::shared_ptr<Attempt> attempt_;
  Instant gives_up_ = kNever;
};

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_TCP_TCP_CONNECTION_POOL_H_
