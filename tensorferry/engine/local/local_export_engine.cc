#include "tensorferry/engine/local/local_export_engine.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/base/host.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/local/lease_table.h"
#include "tensorferry/engine/local/unix_socket.h"
#include "tensorferry/wire/local_messages.h"

namespace tensorferry::engine {
namespace {

using std::chrono::milliseconds;

// What one readiness may do, so that a worker that floods its socket cannot keep the others
// waiting.
constexpr int kMessagesPerTurn = 16;
constexpr int kAcceptsPerTurn = 16;

constexpr milliseconds kFirstLook = milliseconds(1);
constexpr milliseconds kSlowestLook = milliseconds(64);
// How long to leave the listener alone when there is no descriptor for another connection.
constexpr milliseconds kAcceptPause = milliseconds(100);

// Epoll keys: two fixed ones, then two per worker.
constexpr uint64_t kWakeKey = 0;
constexpr uint64_t kListenKey = 1;
constexpr uint64_t SocketKey(uint64_t worker) { return worker * 2; }
constexpr uint64_t ProcessKey(uint64_t worker) { return worker * 2 + 1; }

uint64_t Percent(uint64_t bytes, uint32_t percent) {
  return bytes / 100 * percent + bytes % 100 * percent / 100;
}

class Engine final : public LocalExportEngine {
 public:
  Engine(const LocalExportOptions& options, UnixListener listener, wire::BootId boot_id)
      : options_(options),
        uid_(options.expected_uid.value_or(::geteuid())),
        boot_id_(boot_id),
        listener_(std::move(listener)) {}

  ~Engine() override {
    if (!thread_.joinable()) return;
    if (::getpid() != owner_) {
      thread_.detach();  // a forked child has no such thread
      return;
    }
    stop_.store(true);
    Wake();
    thread_.join();
  }

  std::string_view transport() const override { return "local"; }
  absl::Status Start(const ArenaView& arena, LeaseSource* leases) override;
  wire::Way way() const override { return wire::LocalWay{boot_id_, listener_.path()}; }
  size_t workers() const override { return table_ ? table_->boards() : 0; }

  void Publish(const PublishedLease& lease) override { table_->Publish(lease); }
  bool Retire(const wire::LeaseRef& ref) override {
    if (table_->Retire(ref)) return true;
    Wake();  // the thread begins to look at the boards
    return false;
  }

 private:
  struct Worker {
    UniqueFd socket;
    UniqueFd process;  // pidfd
    pid_t pid = 0;
  };

  void Wake() { (void)::eventfd_write(wake_.get(), 1); }
  bool Watch(int fd, uint64_t key) {
    epoll_event event = {.events = EPOLLIN, .data = {.u64 = key}};
    return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  }
  // Closing is not enough: a child that this process forked may hold the descriptor too, and then
  // epoll would go on to report it.
  void Unwatch(int fd) { (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

  void Run();
  int WaitMillis() const;
  void Handle(uint64_t key);
  void Accept();
  void Welcome(UniqueFd socket);
  void Refuse(int socket, Reason reason);
  void CountHandshake(LabelValue result) {
    Count(options_.metrics, Metric::kHandshakes,
          {ProcessEnd::kGateway, LabelValue::Transport("local"), result});
  }
  void ReadFrom(uint64_t id, Worker& worker);
  void Drop(uint64_t id, std::string_view why);

  const pid_t owner_ = ::getpid();
  const LocalExportOptions options_;
  const uid_t uid_;
  const wire::BootId boot_id_;
  UnixListener listener_;
  ArenaView arena_;
  LeaseSource* leases_ = nullptr;
  std::unique_ptr<LeaseTable> table_;
  UniqueFd epoll_;
  UniqueFd wake_;
  std::atomic<bool> stop_ = false;

  // The thread's own.
  absl::flat_hash_map<uint64_t, Worker> workers_;
  uint64_t next_worker_ = 1;
  milliseconds next_look_ = kFirstLook;
  bool accepting_ = true;
  Instant accept_again_ = {};

  std::thread thread_;
};

absl::Status Engine::Start(const ArenaView& arena, LeaseSource* leases) {
  arena_ = arena;
  leases_ = leases;
  auto table = LeaseTable::Create(arena.max_leases, options_.log);
  if (!table.ok()) return Annotate(table.status(), "lease table for local workers");
  table_ = *std::move(table);
  epoll_.Reset(::epoll_create1(EPOLL_CLOEXEC));
  wake_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_ || !wake_ || !Watch(wake_.get(), kWakeKey) || !Watch(listener_.fd(), kListenKey)) {
    return SystemError(errno, "epoll for local workers");
  }
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& e) {
    return SystemError(e.code().value(), "start the thread for local workers");
  }
  return absl::OkStatus();
}

void Engine::Run() {
  std::array<epoll_event, 32> events;
  while (!stop_.load()) {
    const int n = ::epoll_wait(epoll_.get(), events.data(), events.size(), WaitMillis());
    if (n <= 0) next_look_ = std::min(next_look_ * 2, kSlowestLook);
    for (int i = 0; i < n; ++i) Handle(events[i].data.u64);
    for (const wire::LeaseRef& ref : table_->TakeQuiesced()) leases_->Quiesced(ref);
    if (!accepting_ && RealClock().Now() >= accept_again_) {
      accepting_ = Watch(listener_.fd(), kListenKey);
    }
  }
}

int Engine::WaitMillis() const {
  if (table_->waiting()) return static_cast<int>(next_look_.count());
  if (!accepting_) return static_cast<int>(kAcceptPause.count());
  return -1;
}

void Engine::Handle(uint64_t key) {
  if (key == kWakeKey) {
    eventfd_t count;
    (void)::eventfd_read(wake_.get(), &count);
    next_look_ = kFirstLook;
    return;
  }
  if (key == kListenKey) return Accept();
  const uint64_t id = key / 2;
  const auto it = workers_.find(id);
  if (it == workers_.end()) return;  // dropped by an event just before
  if (key == ProcessKey(id)) return Drop(id, "its process ended");
  ReadFrom(id, it->second);
}

void Engine::Accept() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    UniqueFd socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) {
      Welcome(std::move(socket));
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN) return;
    // Out of descriptors or memory: the waiting connection would wake us again at once, for ever.
    Log(options_.log, LogLevel::kWarning,
        StrCat("local: no further worker can connect for now: ", std::strerror(errno)));
    Unwatch(listener_.fd());
    accepting_ = false;
    accept_again_ = SaturatingAdd(RealClock().Now(), kAcceptPause);
    return;
  }
}

void Engine::Refuse(int socket, Reason reason) {
  CountHandshake(reason);
  Log(options_.log, LogLevel::kWarning,
      StrCat("local: a worker was refused: ", ReasonName(reason)));
  SendWithFds(socket,
              wire::EncodeLocalWelcome(
                  {.status = static_cast<uint16_t>(reason), .instance = arena_.instance}),
              {});
}

void Engine::Welcome(UniqueFd socket) {
  const std::optional<ucred> peer = PeerCredentials(socket.get());
  if (!peer || peer->uid != uid_) return Refuse(socket.get(), Reason::kUidMismatch);
  if (workers_.size() >= options_.max_workers) return Refuse(socket.get(), Reason::kBusy);
  UniqueFd process = OpenPeerPidfd(socket.get());
  if (!process) {
    // Without it a worker's death could go unseen, and its claims would last for ever.
    const bool full = ReasonOf(SystemError(errno, "pidfd")) == Reason::kNoMemory;
    return Refuse(socket.get(), full ? Reason::kNoMemory : Reason::kOtherHost);
  }

  const uint64_t id = next_worker_++;
  const absl::StatusOr<int> board = table_->AddBoard(id);
  if (!board.ok()) return Refuse(socket.get(), Reason::kNoMemory);
  const wire::LocalWelcome welcome = {
      .instance = arena_.instance,
      .arena_bytes = arena_.size,
      .table_entries = table_->entries(),
      .max_claim_bytes = Percent(arena_.size, options_.max_claim_percent)};
  const Worker& worker =
      workers_.emplace(id, Worker{std::move(socket), std::move(process), peer->pid}).first->second;
  if (!Watch(worker.socket.get(), SocketKey(id)) || !Watch(worker.process.get(), ProcessKey(id)) ||
      !SendWithFds(worker.socket.get(), wire::EncodeLocalWelcome(welcome),
                   {arena_.memfd, table_->fd(), *board})) {
    CountHandshake(Reason::kPeerClosed);
    return Drop(id, "it could not be welcomed");
  }
  CountHandshake(absl::OkStatus());
}

void Engine::ReadFrom(uint64_t id, Worker& worker) {
  std::array<std::byte, wire::kLocalReleaseBytes> buffer;
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    // MSG_TRUNC: the true size of a packet that is too long. Descriptors in it are not accepted.
    const ssize_t n =
        ::recv(worker.socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) return Drop(id, "it disconnected");
    if (static_cast<size_t>(n) != buffer.size())
      return Drop(id, "it sent a packet of a wrong size");
    const auto release = wire::DecodeLocalRelease(buffer);
    if (!release.ok()) return Drop(id, StdView(release.status().message()));
    leases_->Done(release->lease);
  }
}

void Engine::Drop(uint64_t id, std::string_view why) {
  const auto it = workers_.find(id);
  Log(options_.log, LogLevel::kDebug,
      StrCat("local: worker process ", it->second.pid, " is gone: ", why));
  Unwatch(it->second.socket.get());
  Unwatch(it->second.process.get());
  workers_.erase(it);
  table_->RemoveBoard(id);
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalExportEngine>> LocalExportEngine::Create(
    const LocalExportOptions& options) {
  if (options.max_claim_percent > 100) {
    return MakeError(Reason::kBadOption, StrCat("max_claim_percent is ", options.max_claim_percent,
                                                ", the limit is 100"));
  }
  const BootId boot_id = ThisHost().boot_id;
  if (boot_id == BootId{}) {
    return MakeError(Reason::kSystem,
                     "local socket: this machine's boot id, by which workers know that they are on"
                     " the same host, cannot be read from /proc");
  }
  absl::StatusOr<UnixListener> listener = UnixListener::Listen(options.socket_path);
  if (!listener.ok()) return listener.status();
  return std::make_unique<Engine>(options, *std::move(listener), boot_id);
}

}  // namespace tensorferry::engine
