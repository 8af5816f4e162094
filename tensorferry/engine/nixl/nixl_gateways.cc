#include "tensorferry/engine/nixl/nixl_gateways.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

#include "tensorferry/base/error.h"
#include "tensorferry/base/poll.h"
#include "tensorferry/base/text.h"
#include "tensorferry/wire/nixl_messages.h"
#include "tensorferry/wire/notification.h"

namespace tensorferry::engine {
namespace {

constexpr size_t kMaxGateways = 1024;
constexpr size_t kMaxUnread = 1024;  // that wait, of one gateway
constexpr uint64_t kReleaseBytes = 8;
constexpr Duration kQuarantineLook = std::chrono::milliseconds(5);
constexpr Duration kReleaseLook = std::chrono::milliseconds(1);
constexpr Duration kFetchLook = std::chrono::milliseconds(1);
constexpr Duration kProgressLook = std::chrono::milliseconds(100);
// What a notification that belongs to no READ gets to leave this process.
constexpr Duration kLinger = std::chrono::milliseconds(200);

Instant Now() { return RealClock().Now(); }

}  // namespace

NixlGateways::NixlGateways(std::shared_ptr<const NixlLibrary> library,
                           std::shared_ptr<NixlAgent> agent, const NixlPullOptions& options)
    : library_(std::move(library)),
      agent_(std::move(agent)),
      options_(options),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Run(); }),
      watch_(Metrics::WatchBy(options_.metrics, [this](Gauges* g) { ShowGauges(g); })) {}

NixlGateways::~NixlGateways() {
  watch_.End();
  {
    const std::lock_guard<std::mutex> lock(mu_);
    stopping_ = true;
  }
  Wake();
  thread_.join();
  // The last resort: without its agent a READ writes no more. Their memory must outlive it.
  for (Resting& r : quarantine_) r.read->Abandon();
  for (const auto& read : releases_) read->Abandon();
}

absl::Status NixlGateways::UseLanding(std::span<std::byte> memory,
                                      const std::shared_ptr<const void>& owner) {
  landing_ = memory;
  landing_owner_ = owner;
  if (absl::Status s = agent_->Register(*scratch_, scratch_); !s.ok()) return s;
  return memory.empty() ? absl::OkStatus() : agent_->Register(memory, owner);
}

void NixlGateways::Wake() { (void)::eventfd_write(wake_.get(), 1); }

NixlGateways::Gateway& NixlGateways::FindLocked(const SocketAddress& address, Instant now) {
  if (!gateways_.contains(address) && gateways_.size() >= kMaxGateways) {
    auto oldest = gateways_.end();
    for (auto it = gateways_.begin(); it != gateways_.end(); ++it) {
      if (it->second.state == State::kConnecting) continue;
      if (oldest == gateways_.end() || it->second.used < oldest->second.used) oldest = it;
    }
    if (oldest != gateways_.end()) gateways_.erase(oldest);
  }
  Gateway& gateway = gateways_[address];
  gateway.used = now;
  return gateway;
}

NixlGateways::Connection NixlGateways::Connect(const SocketAddress& address, uint64_t stale,
                                               Range range) {
  const Instant now = Now();
  const std::lock_guard<std::mutex> lock(mu_);
  Gateway& gateway = FindLocked(address, now);
  if (gateway.state == State::kReady && gateway.connection.epoch > stale) {
    return gateway.connection;
  }
  if (gateway.state == State::kFailed && now < gateway.retry_at) return gateway.connection;
  if (gateway.state != State::kConnecting) {
    gateway.state = State::kConnecting;
    gateway.connection = {};
    gateway.range = range;
    Wake();
  }
  return {};
}

void NixlGateways::Release(const SocketAddress& address, const Unread& unread) {
  const std::lock_guard<std::mutex> lock(mu_);
  Gateway& gateway = FindLocked(address, Now());
  if (gateway.state == State::kFailed && Now() < gateway.retry_at) return;
  if (gateway.unread.size() >= kMaxUnread) return;
  gateway.unread.push_back(unread);
  if (gateway.state == State::kIdle || gateway.state == State::kFailed) {
    gateway.state = State::kConnecting;
    gateway.connection = {};
    gateway.range = {unread.slot, kReleaseBytes};
  }
  Wake();
}

void NixlGateways::Quarantine(std::unique_ptr<NixlRead> read, std::shared_ptr<const void> owner,
                              uint64_t nbytes, const SocketAddress& gateway, const Unread& unread) {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    quarantine_.push_back({std::move(read), std::move(owner), nbytes, gateway, unread});
  }
  Wake();
}

void NixlGateways::Run() {
  Instant close_at = kNever;
  while (true) {
    eventfd_t count;
    (void)::eventfd_read(wake_.get(), &count);
    std::vector<pollfd> waits = {{wake_.get(), POLLIN, 0}};
    Instant wake = Step(&waits);
    {
      const std::lock_guard<std::mutex> lock(mu_);
      if (stopping_) {
        const Instant now = Now();
        if (close_at == kNever) close_at = SaturatingAdd(now, options_.close_timeout);
        const bool silent = std::all_of(gateways_.begin(), gateways_.end(),
                                        [](const auto& g) { return g.second.unread.empty(); });
        const bool told = silent && releases_.empty() && now >= linger_until_;
        if ((quarantine_.empty() && told) || now >= close_at) return;
        wake = std::min(wake, close_at);
        if (now < linger_until_) wake = std::min(wake, linger_until_);
      }
    }
    (void)PollUntil(&waits, wake, Now());
  }
}

Instant NixlGateways::Step(std::vector<pollfd>* waits) {
  const Instant now = Now();
  Instant wake = kNever;
  std::vector<Resting> over;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    const auto still = std::partition(quarantine_.begin(), quarantine_.end(), [](Resting& r) {
      return r.read->Poll() == NixlRead::State::kPending;
    });
    std::move(still, quarantine_.end(), std::back_inserter(over));
    quarantine_.erase(still, quarantine_.end());
    if (!quarantine_.empty()) wake = now + kQuarantineLook;
  }
  for (const Resting& r : over) Release(r.gateway, r.unread);
  over.clear();

  // Only this thread removes what is connecting, so that references to it hold without the lock.
  std::vector<std::pair<SocketAddress, Gateway*>> busy;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    for (auto& [address, gateway] : gateways_) {
      if (gateway.state == State::kConnecting) busy.emplace_back(address, &gateway);
    }
  }
  for (auto& [address, gateway] : busy) {
    StepGateway(address, *gateway, now);
    if (gateway->handshake) {
      waits->push_back({gateway->handshake->fd(), gateway->handshake->events(), 0});
      wake = std::min(wake, gateway->handshake->deadline());
    } else if (gateway->fetch_until != kNever) {
      wake = std::min(wake, now + kFetchLook);
    }
  }
  std::vector<std::pair<Connection, std::vector<Unread>>> to_tell;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    for (auto& [address, gateway] : gateways_) {
      if (gateway.state != State::kReady || gateway.unread.empty()) continue;
      to_tell.emplace_back(gateway.connection, std::exchange(gateway.unread, {}));
    }
  }
  for (const auto& [connection, leases] : to_tell) {
    for (const Unread& unread : leases) Tell(connection, unread);
  }
  std::erase_if(releases_,
                [](const auto& read) { return read->Poll() != NixlRead::State::kPending; });
  const bool telling = !releases_.empty() || now < linger_until_;
  for (const std::shared_ptr<NixlAgent>& agent : Agents()) {
    agent->Progress();
    wake = std::min(wake, now + (telling ? kReleaseLook : kProgressLook));
  }
  return wake;
}

// Those that have met a gateway: ours also when none of them is left, for their connections end.
std::set<std::shared_ptr<NixlAgent>> NixlGateways::Agents() const {
  const std::lock_guard<std::mutex> lock(mu_);
  if (gateways_.empty()) return {};
  std::set<std::shared_ptr<NixlAgent>> agents = {agent_};
  for (const auto& [address, gateway] : gateways_) {
    if (gateway.connection.agent) agents.insert(gateway.connection.agent);
  }
  return agents;
}

void NixlGateways::Tell(const Connection& connection, const Unread& unread) {
  const std::string text = wire::EncodeNotification(unread.key);
  if (connection.agent->Covers(*connection.peer, unread.slot, kReleaseBytes)) {
    absl::StatusOr<std::unique_ptr<NixlRead>> read = connection.agent->Read(
        connection.peer, std::span(*scratch_).first(kReleaseBytes), unread.slot, text);
    if (read.ok()) return releases_.push_back(*std::move(read));
  }
  const absl::Status s = connection.agent->Notify(*connection.peer, text);
  linger_until_ = Now() + kLinger;
  if (!s.ok()) Log(options_.log, LogLevel::kDebug, StdView(s.message()));
}

void NixlGateways::StepGateway(const SocketAddress& address, Gateway& gateway, Instant now) {
  if (gateway.fetch_until != kNever) {
    // NIXL's own exchange is under way.
    std::shared_ptr<NixlAgent> agent = gateway.connection.agent;
    std::shared_ptr<NixlPeer> peer =
        agent->Loaded(options_.gateway_agent_name, gateway.range.address, gateway.range.length);
    if (peer) return Succeed(gateway, std::move(agent), std::move(peer));
    if (now < gateway.fetch_until) return;
    return Fail(
        gateway,
        MakeError(Reason::kUnreachable, StrCat("nixl: no metadata of ", options_.gateway_agent_name,
                                               " from ", address.ToString(), " in time")),
        now);
  }
  if (!gateway.handshake) {
    if (!options_.own_handshake) {
      if (absl::Status s = BeginFetch(address, gateway, now); !s.ok()) Fail(gateway, s, now);
      return;
    }
    gateway.handshake =
        std::make_unique<NixlHandshake>(address, SaturatingAdd(now, options_.handshake_timeout));
  }
  if (!gateway.handshake->Step(now)) return;
  absl::StatusOr<std::string> metadata = gateway.handshake->TakeResult();
  gateway.handshake.reset();
  if (!metadata.ok()) return Fail(gateway, metadata.status(), now);
  absl::StatusOr<std::shared_ptr<NixlPeer>> peer = Load(address, gateway.epochs + 1, *metadata);
  if (peer.ok()) return Succeed(gateway, agent_, *std::move(peer));
  if (ReasonOf(peer.status()) != Reason::kUnknownVersion) return Fail(gateway, peer.status(), now);
  Log(options_.log, LogLevel::kWarning,
      StrCat(peer.status().message(), "; taking NIXL's own exchange with ", address.ToString()));
  if (absl::Status s = BeginFetch(address, gateway, now); !s.ok()) Fail(gateway, s, now);
}

absl::StatusOr<std::shared_ptr<NixlPeer>> NixlGateways::Load(const SocketAddress& address,
                                                             uint64_t epoch,
                                                             const std::string& metadata) {
  const absl::StatusOr<std::string_view> name = wire::NixlAgentName(metadata);
  if (!name.ok()) return name.status();
  // One that no other gateway and no earlier life of this one has.
  const absl::StatusOr<std::string> renamed =
      wire::RenameNixlAgent(metadata, StrCat(*name, "@", address.ToString(), "#", epoch));
  if (!renamed.ok()) return renamed.status();
  return agent_->Load(*renamed);
}

// An agent for this gateway alone: under their own names two gateways of the same name would shut
// each other out.
absl::Status NixlGateways::BeginFetch(const SocketAddress& address, Gateway& gateway, Instant now) {
  absl::StatusOr<std::shared_ptr<NixlAgent>> agent = NixlAgent::Create(
      library_, {.name = StrCat(agent_->name(), "-", address.ToString(), "-", gateway.epochs + 1),
                 .progress_thread = false,
                 .listen = true});
  if (!agent.ok()) return agent.status();
  if (absl::Status s = (*agent)->Register(landing_, landing_owner_); !s.ok()) return s;
  if (absl::Status s = (*agent)->Register(*scratch_, scratch_); !s.ok()) return s;
  if (absl::Status s =
          (*agent)->Fetch(options_.gateway_agent_name, address.HostText(), address.port());
      !s.ok()) {
    return s;
  }
  const std::lock_guard<std::mutex> lock(mu_);
  gateway.connection.agent = *std::move(agent);
  gateway.fetch_until = SaturatingAdd(now, options_.handshake_timeout);
  return absl::OkStatus();
}

void NixlGateways::CountHandshake(const absl::Status& result) const {
  Count(options_.metrics, Metric::kHandshakes,
        {ProcessEnd::kWorker, LabelValue::Transport("nixl"), result});
}

void NixlGateways::ShowGauges(Gauges* gauges) const {
  const std::lock_guard<std::mutex> lock(mu_);
  uint64_t nbytes = 0;
  for (const Resting& r : quarantine_) nbytes += r.nbytes;
  gauges->Add(Metric::kQuarantinedReads, {}, quarantine_.size());
  gauges->Add(Metric::kQuarantinedBytes, {}, nbytes);
}

void NixlGateways::Succeed(Gateway& gateway, std::shared_ptr<NixlAgent> agent,
                           std::shared_ptr<NixlPeer> peer) {
  CountHandshake(absl::OkStatus());
  const std::lock_guard<std::mutex> lock(mu_);
  gateway.state = State::kReady;
  gateway.connection = {.agent = std::move(agent),
                        .peer = std::move(peer),
                        .epoch = ++gateway.epochs,
                        .failure = absl::OkStatus()};
  gateway.fetch_until = kNever;
  gateway.backoff = {};
}

void NixlGateways::Fail(Gateway& gateway, absl::Status why, Instant now) {
  Log(options_.log, LogLevel::kWarning, StdView(why.message()));
  CountHandshake(why);
  const std::lock_guard<std::mutex> lock(mu_);
  gateway.state = State::kFailed;
  gateway.connection = {.agent = {}, .peer = {}, .epoch = 0, .failure = std::move(why)};
  gateway.fetch_until = kNever;
  gateway.backoff = std::clamp(2 * gateway.backoff, options_.backoff_min, options_.backoff_max);
  gateway.retry_at = SaturatingAdd(now, gateway.backoff);
  gateway.unread.clear();
}

}  // namespace tensorferry::engine
