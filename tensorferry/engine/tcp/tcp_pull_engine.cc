#include "tensorferry/engine/tcp/tcp_pull_engine.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/net_way.h"
#include "tensorferry/engine/tcp/tcp_connection_pool.h"
#include "tensorferry/engine/tcp/tcp_exchange.h"
#include "tensorferry/wire/tcp_messages.h"

namespace tensorferry::engine {
namespace {

// Halves meet on a page, so that no page is written by two connections.
constexpr uint64_t kSplitAlignment = 4096;

class Op final : public PullOp {
 public:
  // An op that cannot work.
  explicit Op(absl::Status status) : result_(std::move(status)) {}

  Op(TcpConnectionPool* pool, const PullRequest& request, std::vector<SocketAddress> addresses,
     uint64_t split_bytes, std::atomic<uint64_t>* next_request)
      : pool_(pool), pull_(request) {
    uint64_t first = request.length;
    if (request.length >= split_bytes && request.length >= 2 * kSplitAlignment) {
      first = request.length / 2 / kSplitAlignment * kSplitAlignment;
    }
    const auto add = [&](std::optional<TcpExchange>& part, uint64_t begin, uint64_t length) {
      part.emplace(pool, TcpExchange::Task{.addresses = addresses,
                                           .request = {.kind = wire::TcpRequest::Kind::kRead,
                                                       .request = next_request->fetch_add(
                                                           1, std::memory_order_relaxed),
                                                       .instance = request.descriptor->instance,
                                                       .lease = request.descriptor->lease,
                                                       .offset = request.offset + begin,
                                                       .length = length},
                                           .into = request.into.subspan(begin, length),
                                           .deadline = request.deadline});
    };
    add(parts_[0], 0, first);
    if (first < request.length) add(parts_[1], first, request.length - first);
  }

  ~Op() override { KeepIdle(std::move(gateway_)); }

  Progress Step() override {
    if (result_.has_value()) return Progress::kDone;
    const Instant now = RealClock().Now();
    if (now >= pull_.deadline) return TimedOut();
    bool moved = false;
    bool all = true;
    for (std::optional<TcpExchange>& part : parts_) {
      if (!part.has_value()) continue;
      switch (part->Step(now)) {
        case Progress::kIdle:
          all = false;
          break;
        case Progress::kMoved:
          moved = true;
          all = false;
          break;
        case Progress::kDone:
          if (TcpConnection c = part->TakeConnection()) KeepForDone(std::move(c));
          if (!part->status().ok()) return Finish(part->status());
          break;
      }
    }
    if (all) return Finish(absl::OkStatus());
    return moved ? Progress::kMoved : Progress::kIdle;
  }

  void AddWaits(std::vector<pollfd>* waits, Instant* wake) const override {
    *wake = std::min(*wake, result_.has_value() ? Instant::min() : pull_.deadline);
    for (const std::optional<TcpExchange>& part : parts_) {
      if (part.has_value()) part->AddWaits(waits, wake);
    }
  }

  absl::StatusOr<Landed> TakeResult() override {
    if (!result_->ok()) return *result_;
    return Landed{.bytes = pull_.into, .hold = nullptr};
  }

  void Acknowledge() override {
    if (!gateway_) return;
    const auto done = wire::EncodeTcpRequest({.kind = wire::TcpRequest::Kind::kDone,
                                              .instance = pull_.descriptor->instance,
                                              .lease = pull_.descriptor->lease});
    TcpConnection connection = std::exchange(gateway_, {});
    const ssize_t n =
        ::send(connection.fd(), done.data(), done.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n == static_cast<ssize_t>(done.size())) KeepIdle(std::move(connection));
  }

 private:
  // Held back from the pool until Acknowledge, which must not have to connect.
  void KeepForDone(TcpConnection connection) {
    if (pull_.descriptor->wants_done && !gateway_) {
      gateway_ = std::move(connection);
    } else {
      KeepIdle(std::move(connection));
    }
  }

  void KeepIdle(TcpConnection connection) {
    if (connection) pool_->Put(std::move(connection));
  }

  Progress TimedOut() {
    uint64_t received = 0;
    bool connected = false;
    for (std::optional<TcpExchange>& part : parts_) {
      if (!part.has_value()) continue;
      received += part->received();
      connected = connected || part->connected();
      part->GiveUp();
    }
    return Finish(MakeError(
        Reason::kTimedOut,
        StrCat("lease ", pull_.descriptor->lease.id, " of the gateway at ",
               parts_[0]->gateway().ToString(), ": the deadline passed ",
               connected || received > 0 ? "" : "while connecting, ", "with ", received, " of ",
               pull_.length, " bytes received; raise the timeout, or see whether it is stopped")));
  }

  Progress Finish(absl::Status status) {
    result_ = std::move(status);
    // Closes what is still under way, so that nothing writes to `into` any more.
    for (std::optional<TcpExchange>& part : parts_) part.reset();
    return Progress::kDone;
  }

  TcpConnectionPool* const pool_ = nullptr;
  const PullRequest pull_;
  std::array<std::optional<TcpExchange>, 2> parts_;
  TcpConnection gateway_;  // for Acknowledge
  std::optional<absl::Status> result_;
};

class Engine final : public PullEngine {
 public:
  explicit Engine(const TcpPullOptions& options)
      : options_(options),
        pool_({.idle_connections = options.idle_connections,
               .connect_timeout = options.connect_timeout,
               .backoff_min = options.backoff_min,
               .backoff_max = options.backoff_max,
               .log = options.log,
               .metrics = options.metrics}) {}

  std::string_view transport() const override { return "tcp"; }
  bool borrows() const override { return false; }

  absl::Status CanTry(const wire::Descriptor& descriptor) const override {
    return Usable(descriptor).status();
  }

  std::unique_ptr<PullOp> Start(const PullRequest& request) override {
    absl::StatusOr<std::vector<SocketAddress>> addresses = Usable(*request.descriptor);
    if (!addresses.ok()) return std::make_unique<Op>(addresses.status());
    if (request.into.size() != request.length) {
      return std::make_unique<Op>(MakeError(
          Reason::kSizeMismatch, StrCat("engine/tcp: ", request.length, " bytes into memory of ",
                                        request.into.size(), ": they must be equal")));
    }
    std::stable_partition(addresses->begin(), addresses->end(),
                          [this](const SocketAddress& a) { return pool_.Warm(a); });
    return std::make_unique<Op>(&pool_, request, *std::move(addresses), options_.split_bytes,
                                &next_request_);
  }

 private:
  // The addresses that may be dialled, or why there is none.
  absl::StatusOr<std::vector<SocketAddress>> Usable(const wire::Descriptor& descriptor) const {
    return UsableAddresses(
        descriptor, wire::NetWay::Kind::kTcp,
        [this](const SocketAddress& address) { return options_.allow.CheckDial(address); });
  }

  const TcpPullOptions options_;
  TcpConnectionPool pool_;
  std::atomic<uint64_t> next_request_ = 1;
};

}  // namespace

std::unique_ptr<PullEngine> CreateTcpPullEngine(const TcpPullOptions& options) {
  return std::make_unique<Engine>(options);
}

}  // namespace tensorferry::engine
