#include "tensorferry/engine/local/gateway_directory.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/local/unix_socket.h"
#include "tensorferry/wire/local_messages.h"

namespace tensorferry::engine {
namespace {

constexpr uint64_t kStopKey = 0;
constexpr size_t kMaxFailures = 64;
constexpr Duration kRetryFullQueue = std::chrono::milliseconds(1);
constexpr Duration kWrongInstanceTtl = std::chrono::minutes(1);

std::string NameOf(const std::string& path) { return StrCat("gateway at \"", path, "\""); }

// What a packet of the gateway's says, beyond its descriptors.
absl::StatusOr<wire::LocalWelcome> ReadWelcome(std::span<const std::byte> bytes,
                                               const std::string& path) {
  absl::StatusOr<wire::LocalWelcome> welcome = wire::DecodeLocalWelcome(bytes);
  if (!welcome.ok()) return Annotate(welcome.status(), NameOf(path));
  if (welcome->status == 0) return welcome;
  const std::optional<Reason> reason = ReasonFromNumber(welcome->status);
  if (!reason) {
    return MakeError(Reason::kProtocol, StrCat(NameOf(path),
                                               " refused this worker with the unknown"
                                               " status ",
                                               welcome->status));
  }
  return MakeError(*reason, StrCat(NameOf(path), " refused this worker (uid ", ::geteuid(),
                                   "): ", ReasonMeaning(*reason)));
}

}  // namespace

// Guarded by the directory's mutex.
class GatewayDirectory::Attempt {
 public:
  Attempt(std::string to, Instant end)
      : path(std::move(to)), give_up(end), over(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  const std::string path;
  const Instant give_up;
  const UniqueFd over;  // readable for ever once there is an outcome: wakes whoever did not drive
  UniqueFd socket;      // none yet while the gateway's queue is full
  Instant next_try = {};
  std::optional<Outcome> outcome;
};

GatewayDirectory::GatewayDirectory(Duration connect_timeout, LogSink log,
                                   std::shared_ptr<Metrics> metrics)
    : owner_(::getpid()),
      connect_timeout_(connect_timeout),
      log_(std::move(log)),
      metrics_(std::move(metrics)) {}

GatewayDirectory::~GatewayDirectory() {
  if (::getpid() != owner_) {
    if (thread_.joinable()) thread_.detach();  // a forked child has no such thread
    return;
  }
  if (thread_.joinable()) {
    (void)::eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  for (const Mapped& mapped : mapped_) mapped.gateway->Unwatch();
}

std::shared_ptr<MappedGateway> GatewayDirectory::FindLocked(
    const std::string& path, const wire::InstanceId& instance) const {
  for (const Mapped& mapped : mapped_) {
    if (mapped.gateway->instance() == instance && mapped.gateway->path() == path) {
      return mapped.gateway;
    }
  }
  return nullptr;
}

std::shared_ptr<MappedGateway> GatewayDirectory::Find(const std::string& path,
                                                      const wire::InstanceId& instance) const {
  std::lock_guard lock(mutex_);
  return FindLocked(path, instance);
}

absl::Status GatewayDirectory::KnownFailure(const std::string& path,
                                            const wire::InstanceId& instance, Instant now) const {
  std::lock_guard lock(mutex_);
  for (const Failure& failure : failures_) {
    if (failure.path == path && failure.instance.value_or(instance) == instance &&
        now < failure.until) {
      return failure.status;
    }
  }
  return absl::OkStatus();
}

void GatewayDirectory::Remember(Failure failure, Instant now) {
  std::erase_if(failures_, [&](const Failure& old) {
    return old.until <= now || (old.path == failure.path && old.instance == failure.instance);
  });
  if (failures_.size() >= kMaxFailures) failures_.erase(failures_.begin());
  failures_.push_back(std::move(failure));
}

void GatewayDirectory::RememberWrongInstance(const std::string& path,
                                             const wire::InstanceId& instance,
                                             const absl::Status& status, Instant now) {
  std::lock_guard lock(mutex_);
  Remember({path, instance, status, SaturatingAdd(now, kWrongInstanceTtl)}, now);
}

GatewayDirectory::Joined GatewayDirectory::Join(const std::string& path, Instant now) {
  std::lock_guard lock(mutex_);
  // Attempts that everybody has abandoned.
  absl::erase_if(attempts_, [&](const auto& entry) {
    return entry.second.use_count() == 1 && entry.second->give_up <= now;
  });
  std::shared_ptr<Attempt>& attempt = attempts_[path];
  const bool fresh = attempt == nullptr;
  if (fresh) attempt = std::make_shared<Attempt>(path, SaturatingAdd(now, connect_timeout_));
  return {attempt, fresh};
}

std::optional<GatewayDirectory::Outcome> GatewayDirectory::Drive(Attempt& attempt, Instant now) {
  std::lock_guard lock(mutex_);
  if (attempt.outcome) return attempt.outcome;
  if (!attempt.socket && now >= attempt.next_try) {
    if (absl::Status s = Connect(attempt, now); !s.ok()) Finish(attempt, s, now);
  }
  if (attempt.socket) {
    if (std::optional<Outcome> outcome = Receive(attempt)) Finish(attempt, *outcome, now);
  }
  if (!attempt.outcome && now >= attempt.give_up) {
    const absl::Status silent = MakeError(
        Reason::kUnreachable,
        StrCat(NameOf(attempt.path), " did not answer within ",
               std::chrono::duration_cast<std::chrono::milliseconds>(connect_timeout_).count(),
               " ms (the local engine's connect_timeout): it is stopped or overloaded"));
    Remember({attempt.path, std::nullopt, silent, SaturatingAdd(now, connect_timeout_)}, now);
    Finish(attempt, silent, now);
  }
  return attempt.outcome;
}

absl::Status GatewayDirectory::Connect(Attempt& attempt, Instant now) {
  if (!attempt.over) return SystemError(EMFILE, "eventfd");
  absl::StatusOr<UniqueFd> socket = ConnectUnix(attempt.path);
  if (!socket.ok()) {
    if (ReasonOf(socket.status()) != Reason::kBusy) return socket.status();
    attempt.next_try = SaturatingAdd(now, kRetryFullQueue);
    return absl::OkStatus();
  }
  const std::optional<ucred> peer = PeerCredentials(socket->get());
  if (!peer || peer->uid != ::geteuid()) {
    return MakeError(Reason::kUidMismatch,
                     StrCat(NameOf(attempt.path), " runs as uid ", peer ? peer->uid : uid_t(-1),
                            ", this worker as uid ", ::geteuid(), "; run both as the same user"));
  }
  attempt.socket = *std::move(socket);
  return absl::OkStatus();
}

std::optional<GatewayDirectory::Outcome> GatewayDirectory::Receive(Attempt& attempt) {
  std::array<std::byte, wire::kLocalWelcomeBytes> buffer;
  absl::StatusOr<std::optional<ReceivedPacket>> received =
      ReceiveWithFds(attempt.socket.get(), buffer);
  if (!received.ok()) return Annotate(received.status(), NameOf(attempt.path));
  if (!received->has_value()) return std::nullopt;
  ReceivedPacket& packet = **received;
  if (packet.size == 0) {
    return MakeError(Reason::kPeerClosed,
                     StrCat(NameOf(attempt.path), " closed the connection without a word"));
  }
  const absl::StatusOr<wire::LocalWelcome> welcome =
      ReadWelcome(std::span(buffer).first(packet.size), attempt.path);
  if (!welcome.ok()) return welcome.status();
  if (auto known = FindLocked(attempt.path, welcome->instance)) return known;
  Outcome gateway =
      MappedGateway::Map(attempt.path, std::move(attempt.socket), *welcome, std::move(packet.fds));
  if (!gateway.ok()) return gateway;
  if (absl::Status s = Adopt(*gateway); !s.ok()) return s;
  return gateway;
}

absl::Status GatewayDirectory::Adopt(const std::shared_ptr<MappedGateway>& gateway) {
  if (!thread_.joinable()) {
    if (absl::Status s = StartThread(); !s.ok()) return s;
  }
  const uint64_t key = next_key_++;
  if (absl::Status s = gateway->Watch(epoll_.get(), key); !s.ok()) return s;
  mapped_.push_back({key, gateway});
  Log(log_, LogLevel::kDebug, StrCat("local: mapped the ", NameOf(gateway->path())));
  return absl::OkStatus();
}

absl::Status GatewayDirectory::StartThread() {
  epoll_.Reset(::epoll_create1(EPOLL_CLOEXEC));
  stop_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event = {.events = EPOLLIN, .data = {.u64 = kStopKey}};
  if (!epoll_ || !stop_ || ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stop_.get(), &event) != 0) {
    return SystemError(errno, "epoll for local gateways");
  }
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& e) {
    return SystemError(e.code().value(), "start the thread for local gateways");
  }
  return absl::OkStatus();
}

void GatewayDirectory::Finish(Attempt& attempt, Outcome outcome, Instant now) {
  Count(metrics_, Metric::kHandshakes,
        {ProcessEnd::kWorker, LabelValue::Transport("local"), outcome.status()});
  if (!outcome.ok()) {
    const std::optional<Reason> reason = ReasonOf(outcome.status());
    if (reason != Reason::kUnreachable && reason != Reason::kPeerClosed) {
      Remember({attempt.path, std::nullopt, outcome.status(), SaturatingAdd(now, connect_timeout_)},
               now);
    }
  }
  attempt.outcome = std::move(outcome);
  attempt.socket.Reset();
  (void)::eventfd_write(attempt.over.get(), 1);
  attempts_.erase(attempt.path);  // its drivers still own it
}

void GatewayDirectory::AddWaits(const Attempt& attempt, std::vector<pollfd>* waits,
                                Instant* wake) const {
  std::lock_guard lock(mutex_);
  waits->push_back({.fd = attempt.over.get(), .events = POLLIN, .revents = 0});
  if (attempt.socket) {
    waits->push_back({.fd = attempt.socket.get(), .events = POLLIN, .revents = 0});
  } else {
    *wake = std::min(*wake, attempt.next_try);
  }
  *wake = std::min(*wake, attempt.give_up);
}

void GatewayDirectory::Run() {
  std::array<epoll_event, 16> events;
  for (;;) {
    const int n = ::epoll_wait(epoll_.get(), events.data(), events.size(), -1);
    for (int i = 0; i < n; ++i) {
      const uint64_t key = events[i].data.u64;
      if (key == kStopKey) return;
      std::shared_ptr<MappedGateway> gateway;  // perhaps the last owner: unmapped without the lock
      const bool gone = (events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
      {
        std::lock_guard lock(mutex_);
        const auto it = std::find_if(mapped_.begin(), mapped_.end(),
                                     [&](const Mapped& m) { return m.key == key; });
        if (it == mapped_.end()) continue;
        gateway = it->gateway;
        if (gone) mapped_.erase(it);
      }
      if (gone) {
        gateway->Unwatch();
        Log(log_, LogLevel::kDebug, StrCat("local: the ", NameOf(gateway->path()), " is gone"));
      } else {
        gateway->Flush();
      }
    }
  }
}

}  // namespace tensorferry::engine
