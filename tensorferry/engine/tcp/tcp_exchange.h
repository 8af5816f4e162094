// One request and its answer: a range of a lease, received straight into the caller's memory.
//
//   TcpExchange exchange(&pool, {.addresses = a, .request = r, .into = span, .deadline = d});
//   while (exchange.Step(now) != PullOp::Progress::kDone) { poll(exchange.AddWaits()); }
//   if (exchange.status().ok()) ...
//
// Tries the gateway's addresses in order. A connection that lay idle and turns out dead before the
// answer begins is replaced by a fresh one, without a word. Never blocks, and leaves the end at the
// deadline to its caller. Once destroyed or done, it writes nothing to `into` any more.
// Thread-safety: one thread at a time.
#ifndef TENSORFERRY_ENGINE_TCP_TCP_EXCHANGE_H_
#define TENSORFERRY_ENGINE_TCP_TCP_EXCHANGE_H_

#include <poll.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/net.h"
#include "tensorferry/engine/pull_engine.h"
#include "tensorferry/engine/tcp/tcp_connection_pool.h"
#include "tensorferry/wire/tcp_messages.h"

namespace tensorferry::engine {

class TcpExchange {
 public:
  struct Task {
    std::vector<SocketAddress> addresses;  // at least one; of one gateway
    wire::TcpRequest request;              // all but deadline_ms
    std::span<std::byte> into;             // request.length bytes
    Instant deadline = kNever;
  };
  // `pool` outlives the exchange.
  TcpExchange(TcpConnectionPool* pool, Task task);
  TcpExchange(const TcpExchange&) = delete;
  TcpExchange& operator=(const TcpExchange&) = delete;

  PullOp::Progress Step(Instant now);
  void AddWaits(std::vector<pollfd>* waits, Instant* wake) const;
  // The deadline has passed.
  void GiveUp();

  // After kDone.
  const absl::Status& status() const { return status_; }
  // After kDone: the connection, if it is fit for another exchange.
  TcpConnection TakeConnection() { return std::exchange(connection_, {}); }

  uint64_t received() const { return received_; }  // of the payload
  bool connected() const { return static_cast<bool>(connection_); }
  const SocketAddress& gateway() const { return task_.addresses[at_]; }

 private:
  enum class State { kDialing, kAsking, kReceiving, kDone };
  using Progress = PullOp::Progress;

  Progress Dial(Instant now);
  Progress Ask();
  Progress Receive();
  Progress TakeHeader();
  Progress ConnectionFailed(const absl::Status& why);
  Progress AddressFailed(const absl::Status& why);
  Progress Finish(const absl::Status& status);
  std::string Subject() const;

  TcpConnectionPool* const pool_;
  const Task task_;
  State state_ = State::kDialing;
  absl::Status status_;

  size_t at_ = 0;         // which address
  bool fresh_ = false;    // the idle connections to it are dead
  Instant move_on_;       // to the next address, if not connected by then
  absl::Status failure_;  // of the addresses before
  TcpConnectionPool::Dial dial_;

  TcpConnection connection_;
  std::array<std::byte, wire::kTcpRequestBytes> request_;
  std::array<std::byte, wire::kTcpAnswerBytes> header_;
  size_t asked_ = 0;
  size_t header_used_ = 0;
  uint64_t received_ = 0;
};

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_TCP_TCP_EXCHANGE_H_
