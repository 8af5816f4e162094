#include "tensorferry/engine/tcp/tcp_export_engine.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <list>
#include <system_error>
#include <thread>
#include <utility>

#include "tensorferry/base/error.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/base/spin.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/net_way.h"
#include "tensorferry/engine/tcp/tcp_served_connection.h"
#include "tensorferry/engine/tcp_socket.h"

namespace tensorferry::engine {
namespace {

// Connections beyond max_connections that live long enough to be answered kBusy.
constexpr size_t kRefusable = 64;
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);

class Engine final : public TcpExportEngine {
 public:
  Engine(const TcpExportOptions& options, UniqueFd listener, const SocketAddress& bound,
         std::vector<SocketAddress> advertised)
      : options_(options),
        bound_(bound),
        advertised_(std::move(advertised)),
        listener_(std::move(listener)) {}

  ~Engine() override {
    if (!thread_.joinable()) return;
    stop_.store(true, std::memory_order_release);
    (void)::eventfd_write(wake_.get(), 1);
    thread_.join();
    // A forked child may hold a copy of the descriptor, and must not keep the port.
    (void)::shutdown(listener_.get(), SHUT_RDWR);
  }

  absl::Status Init();

  std::string_view transport() const override { return "tcp"; }
  absl::Status Start(const ArenaView& arena, LeaseSource* leases) override;
  wire::Way way() const override { return wire::NetWay{wire::NetWay::Kind::kTcp, advertised_}; }
  SocketAddress address() const override { return bound_; }

  // A lease's readability is LeaseSource::Open's answer, and its pins are the exporter's to wait
  // for.
  void Publish(const PublishedLease&) override {}
  bool Retire(const wire::LeaseRef&) override { return true; }

 private:
  // Ordered by last activity, the longest idle first.
  struct Peer;
  using Peers = std::list<Peer>;
  struct Peer {
    Peer(UniqueFd fd, const SocketAddress& address, bool refuse)
        : connection(std::move(fd), address, refuse) {}
    TcpServedConnection connection;
    Peers::iterator self = {};
    bool queued = false;  // in ready_
  };

  absl::Status Watch(int fd, uint32_t events, void* what);
  void Run();
  void Wait();
  void TakeTurns();
  void Accept();
  bool AcceptOne();
  void PauseAccept(Instant now);
  void Adopt(UniqueFd fd, const SocketAddress& address);
  bool EvictIdle(bool refused);
  void CutOff();
  void Close(Peer& peer);
  void Enqueue(Peer& peer);
  void ReportBadPeer(const TcpServedConnection& connection);
  void CountConnection(LabelValue result) {
    Count(options_.metrics, Metric::kHandshakes,
          {ProcessEnd::kGateway, LabelValue::Transport("tcp"), result});
  }

  const TcpExportOptions options_;
  const SocketAddress bound_;
  const std::vector<SocketAddress> advertised_;
  TcpService service_;
  UniqueFd listener_;
  UniqueFd epoll_;
  UniqueFd wake_;
  // Given up for a moment to accept, and close at once, a connection for which no descriptor is
  // left.
  UniqueFd spare_;
  std::atomic<bool> stop_ = false;

  // The rest belongs to the thread.
  Peers peers_;
  size_t refused_ = 0;  // of peers_: those that are answered kBusy
  std::vector<Peer*> ready_;
  Instant active_ = {};  // when the last turn ended
  Spin spin_;
  Instant next_cut_off_ = kNever;  // no reader is to be cut off before
  bool acceptable_ = false;
  Instant accept_again_ = kNever;  // unless paused
  uint64_t bad_peers_ = 0;
  uint64_t turned_away_ = 0;
  std::thread thread_;
};

absl::Status Engine::Watch(int fd, uint32_t events, void* what) {
  epoll_event event = {};
  event.events = events;
  event.data.ptr = what;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  return SystemError(errno, "engine/tcp: epoll_ctl");
}

absl::Status Engine::Init() {
  epoll_.Reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return SystemError(errno, "engine/tcp: epoll_create1 (see ulimit -n)");
  wake_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_) return SystemError(errno, "engine/tcp: eventfd (see ulimit -n)");
  spare_.Reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (absl::Status s = Watch(wake_.get(), EPOLLIN, &wake_); !s.ok()) return s;
  return Watch(listener_.get(), EPOLLIN, &listener_);
}

absl::Status Engine::Start(const ArenaView& arena, LeaseSource* leases) {
  service_ = {
      .leases = leases, .instance = arena.instance, .stall_timeout = options_.stall_timeout};
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& e) {
    return SystemError(e.code().value(), "engine/tcp: cannot start a thread (see ulimit -u)");
  }
  return absl::OkStatus();
}

void Engine::Run() {
  while (!stop_.load(std::memory_order_acquire)) {
    Wait();
    TakeTurns();
    if (acceptable_) Accept();
    if (next_cut_off_ != kNever && RealClock().Now() >= next_cut_off_) CutOff();
  }
  ready_.clear();
  peers_.clear();
}

// Spins for a while after activity: the answer to "anything new?" is then a fraction of a wake-up
// away.
void Engine::Wait() {
  Duration sleep = Duration::zero();
  const Instant now = RealClock().Now();
  if (now >= accept_again_) {
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.ptr = &listener_;
    (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event);
    accept_again_ = kNever;
  }
  const Instant wake = std::min(next_cut_off_, accept_again_);
  if (ready_.empty() && !spin_.Again(active_)) {
    sleep = wake == kNever ? Duration::max() : std::max(Duration::zero(), wake - now);
  }
  std::array<epoll_event, 64> events;
  int count;
  if (sleep == Duration::max()) {
    count = ::epoll_wait(epoll_.get(), events.data(), events.size(), -1);
  } else {
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(sleep).count();
    count = ::epoll_wait(epoll_.get(), events.data(), events.size(),
                         static_cast<int>(std::min<int64_t>(ms, 1 << 30)));
  }
  for (int i = 0; i < count; ++i) {
    void* const what = events[i].data.ptr;
    if (what == &listener_) {
      acceptable_ = true;
    } else if (what != &wake_) {
      Peer& peer = *static_cast<Peer*>(what);
      peer.connection.Note(events[i].events);
      Enqueue(peer);
    }
  }
}

void Engine::Enqueue(Peer& peer) {
  if (std::exchange(peer.queued, true)) return;
  ready_.push_back(&peer);
}

void Engine::TakeTurns() {
  if (ready_.empty()) return;
  const Instant now = RealClock().Now();
  const std::vector<Peer*> round = std::exchange(ready_, {});
  for (Peer* peer : round) {
    peer->queued = false;
    peers_.splice(peers_.end(), peers_, peer->self);
    switch (peer->connection.TakeTurn(service_, now)) {
      case TcpServedConnection::Turn::kAgain:
        Enqueue(*peer);
        break;
      case TcpServedConnection::Turn::kBlocked:
        break;
      case TcpServedConnection::Turn::kClose:
        ReportBadPeer(peer->connection);
        Close(*peer);
        continue;
    }
    next_cut_off_ = std::min(next_cut_off_, peer->connection.cut_off());
  }
  active_ = RealClock().Now();
}

void Engine::Close(Peer& peer) {
  if (peer.connection.refuses()) --refused_;
  peers_.erase(peer.self);
}

// One line for each power of two, so that a scanner cannot flood the log.
void Engine::ReportBadPeer(const TcpServedConnection& connection) {
  if (connection.status().ok()) return;
  if (!std::has_single_bit(++bad_peers_)) return;
  Log(options_.log, LogLevel::kWarning,
      StrCat("engine/tcp: closed the connection of ", connection.Describe(), ": ",
             StdView(connection.status().message()), " (", bad_peers_, " such so far)"));
}

void Engine::CutOff() {
  const Instant now = RealClock().Now();
  next_cut_off_ = kNever;
  for (auto it = peers_.begin(); it != peers_.end();) {
    Peer& peer = *it++;
    if (peer.connection.cut_off() > now) {
      next_cut_off_ = std::min(next_cut_off_, peer.connection.cut_off());
      continue;
    }
    Log(options_.log, LogLevel::kWarning,
        StrCat("engine/tcp: cut off a reader that took too long: ", peer.connection.Describe()));
    std::erase(ready_, &peer);
    Close(peer);
  }
}

void Engine::Accept() {
  acceptable_ = false;
  // Level-triggered: what is left over is told again.
  for (int i = 0; i < 16; ++i) {
    if (!AcceptOne()) return;
  }
}

bool Engine::AcceptOne() {
  sockaddr_storage storage = {};
  socklen_t length = sizeof(storage);
  const auto accept = [&] {
    return UniqueFd(::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&storage), &length,
                              SOCK_NONBLOCK | SOCK_CLOEXEC));
  };
  UniqueFd fd = accept();
  if (fd) {
    Adopt(std::move(fd), SocketAddress::FromSockaddr(storage).value_or(SocketAddress()));
    return true;
  }
  switch (errno) {
    case EAGAIN:
      return false;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS: {
      const absl::Status status =
          SystemError(errno, "engine/tcp: cannot accept a connection (see ulimit -n)");
      if (std::has_single_bit(++turned_away_)) {
        Log(options_.log, LogLevel::kError,
            StrCat(StdView(status.message()), " (", turned_away_, " such so far)"));
      }
      // An end at once is better for the reader than silence until its deadline.
      spare_.Reset();
      const bool closed = static_cast<bool>(accept());
      if (closed) CountConnection(Reason::kNoMemory);
      spare_.Reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (!closed || !spare_) PauseAccept(RealClock().Now());
      return false;
    }
    default:
      return true;  // this connection ended before it was accepted
  }
}

void Engine::PauseAccept(Instant now) {
  epoll_event event = {};
  event.data.ptr = &listener_;
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event);
  accept_again_ = now + kAcceptPause;
}

void Engine::Adopt(UniqueFd fd, const SocketAddress& address) {
  // What is refused counts apart: it must not keep readers out for longer than the crowd lasts.
  const bool crowded = peers_.size() - refused_ >= options_.max_connections;
  const bool refuse = crowded && !EvictIdle(/*refused=*/false);
  if (refuse && refused_ >= kRefusable && !EvictIdle(/*refused=*/true)) {
    return CountConnection(Reason::kBusy);
  }
  if (refuse) ++refused_;
  CountConnection(refuse ? LabelValue(Reason::kBusy) : absl::OkStatus());
  TuneTcpSocket(fd.get(), options_.stall_timeout);
  Peer& peer = peers_.emplace_back(std::move(fd), address, refuse);
  peer.self = std::prev(peers_.end());
  const absl::Status watched =
      Watch(peer.connection.fd(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, &peer);
  if (!watched.ok()) {
    Log(options_.log, LogLevel::kError, StdView(watched.message()));
    Close(peer);
    return;
  }
  Enqueue(peer);
}

// Pullers keep idle connections and replace a closed one without a word, so the longest idle one
// makes room.
bool Engine::EvictIdle(bool refused) {
  for (Peer& peer : peers_) {
    if (peer.connection.refuses() != refused) continue;
    if (peer.connection.answering() || peer.queued) continue;
    Close(peer);
    return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TcpExportEngine>> TcpExportEngine::Create(
    const TcpExportOptions& options) {
  if (absl::Status s = CheckListen(options.listen, !options.advertise.empty()); !s.ok()) return s;
  absl::StatusOr<TcpListener> listener = ListenTcp(options.listen);
  if (!listener.ok()) return listener.status();

  auto advertised = AdvertisedAddresses(options.advertise, listener->address);
  if (!advertised.ok()) return advertised.status();
  auto engine = std::make_unique<Engine>(options, std::move(listener->socket), listener->address,
                                         *std::move(advertised));
  if (absl::Status s = engine->Init(); !s.ok()) return s;
  return engine;
}

}  // namespace tensorferry::engine
