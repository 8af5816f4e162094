#include "tensorferry/engine/nixl/nixl_export_engine.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tensorferry/base/error.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/base/poll.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/net_way.h"
#include "tensorferry/engine/nixl/nixl_agent.h"
#include "tensorferry/engine/nixl/nixl_agent_process.h"
#include "tensorferry/engine/nixl/nixl_listener.h"
#include "tensorferry/wire/notification.h"

namespace tensorferry::engine {
namespace {

constexpr Duration kBusyLook = std::chrono::microseconds(250);

// The agent, wherever it lives.
class AgentHome {
 public:
  virtual ~AgentHome() = default;
  virtual const std::string& metadata() const = 0;
  virtual uint64_t arena_address() const = 0;
  virtual bool SetBusy(bool busy) = 0;
  // Appends what to poll for, and lowers *wake.
  virtual void AddWaits(std::vector<pollfd>* waits, Instant* wake) const = 0;
  virtual absl::Status Take(const std::function<void(std::string_view)>& on_notification) = 0;
};

class ElsewhereHome final : public AgentHome {
 public:
  explicit ElsewhereHome(std::unique_ptr<NixlAgentProcess> process)
      : process_(std::move(process)) {}
  const std::string& metadata() const override { return process_->metadata(); }
  uint64_t arena_address() const override { return process_->arena_address(); }
  bool SetBusy(bool busy) override { return process_->SetBusy(busy); }
  void AddWaits(std::vector<pollfd>* waits, Instant*) const override {
    waits->push_back({process_->fd(), POLLIN, 0});
  }
  absl::Status Take(const std::function<void(std::string_view)>& on_notification) override {
    return process_->TakeNotifications(on_notification);
  }

 private:
  std::unique_ptr<NixlAgentProcess> process_;
};

class HereHome final : public AgentHome {
 public:
  HereHome(NixlServer server, uint64_t address) : server_(std::move(server)), address_(address) {}
  const std::string& metadata() const override { return server_.metadata; }
  uint64_t arena_address() const override { return address_; }
  bool SetBusy(bool busy) override {
    busy_ = busy;
    return true;
  }
  void AddWaits(std::vector<pollfd>*, Instant* wake) const override {
    if (busy_) *wake = std::min(*wake, RealClock().Now() + kBusyLook);
  }
  absl::Status Take(const std::function<void(std::string_view)>& on_notification) override {
    return server_.agent->TakeNotifications(on_notification);
  }

 private:
  NixlServer server_;
  uint64_t address_;
  bool busy_ = false;
};

class Engine final : public NixlExportEngine {
 public:
  Engine(const NixlExportOptions& options, std::unique_ptr<NixlListener> listener,
         const SocketAddress& advertised)
      : options_(options), listener_(std::move(listener)), advertised_(advertised) {}

  ~Engine() override {
    if (!thread_.joinable()) return;
    stop_.store(true);
    Wake();
    thread_.join();
  }

  std::string_view transport() const override { return "nixl"; }
  bool one_sided() const override { return true; }
  bool for_smg() const override { return true; }
  SocketAddress address() const override { return listener_->address(); }
  uint64_t epoch() const override { return runs_.load() ? epoch_.load() : 0; }

  absl::Status Start(const ArenaView& arena, LeaseSource* leases) override {
    arena_ = arena;
    leases_ = leases;
    if (!wake_) return SystemError(errno, "eventfd of engine/nixl");
    absl::StatusOr<std::unique_ptr<AgentHome>> home = StartAgent();
    if (!home.ok()) return home.status();
    Settle(*std::move(home));
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  wire::Way way() const override {
    return wire::SmgDescriptor{.slot_addr = arena_address_.load(),
                               .gen = 0,
                               .key = 0,
                               .port = advertised_.port(),
                               .host = advertised_.HostText()};
  }

  void Publish(const PublishedLease& lease) override {
    const std::lock_guard<std::mutex> lock(mu_);
    live_.insert(lease.ref.generation);
    if (live_.size() == 1) Wake();
  }

  bool Retire(const wire::LeaseRef& ref) override {
    const std::lock_guard<std::mutex> lock(mu_);
    // Else an agent that has nobody left to wait for would go on looking.
    if (live_.erase(ref.generation) > 0 && live_.empty()) Wake();
    return true;
  }

  NixlExportStats stats() const override {
    return {.notifications = notifications_.load(),
            .bad_notifications = bad_.load(),
            .late_notifications = late_.load(),
            .handshakes = handshakes_.load()};
  }

 private:
  void Wake() { (void)::eventfd_write(wake_.get(), 1); }

  absl::StatusOr<std::unique_ptr<AgentHome>> StartAgent() const {
    if (options_.in_process) return StartHere();
    absl::StatusOr<std::unique_ptr<NixlAgentProcess>> process = NixlAgentProcess::Start(
        {.program = options_.agent_program,
         .order = {.library = options_.library,
                   .agent_name = options_.agent_name,
                   .progress_delay_us = options_.progress_delay_us,
                   .arena_address = reinterpret_cast<uintptr_t>(arena_.data),
                   .arena_bytes = arena_.size},
         .memfd = arena_.memfd});
    if (!process.ok()) return process.status();
    return std::make_unique<ElsewhereHome>(*std::move(process));
  }

  absl::StatusOr<std::unique_ptr<AgentHome>> StartHere() const {
    absl::StatusOr<NixlServer> server =
        ServeByNixl(options_.library,
                    {.name = options_.agent_name, .progress_delay_us = options_.progress_delay_us},
                    std::span(arena_.data, arena_.size));
    if (!server.ok()) return server.status();
    return std::make_unique<HereHome>(*std::move(server), reinterpret_cast<uintptr_t>(arena_.data));
  }

  void Settle(std::unique_ptr<AgentHome> home) {
    home_ = std::move(home);
    arena_address_.store(home_->arena_address());
    busy_ = false;
    if (++epoch_ > 1) Count(options_.metrics, Metric::kAgentRestarts, {});
    runs_.store(true);
  }

  void Run() {
    const RealClock clock;
    while (true) {
      eventfd_t count;
      (void)::eventfd_read(wake_.get(), &count);
      // After the read, which may have taken the last wake-up.
      if (stop_.load()) break;
      if (!home_ && clock.Now() >= restart_at_) Restart(clock.Now());
      if (home_) TellWhetherBusy();
      listener_->Step(home_ ? std::string_view(home_->metadata()) : std::string_view());
      const uint64_t before = handshakes_.exchange(listener_->answered());
      if (const uint64_t more = listener_->answered() - before; more > 0) {
        Count(options_.metrics, Metric::kHandshakes,
              {ProcessEnd::kGateway, LabelValue::Transport("nixl"), absl::OkStatus()}, more);
      }
      if (home_) Take(clock.Now());

      std::vector<pollfd> waits = {{wake_.get(), POLLIN, 0}};
      Instant wake = home_ ? kNever : restart_at_;
      listener_->AddWaits(&waits);
      if (home_) home_->AddWaits(&waits, &wake);
      (void)PollUntil(&waits, wake, clock.Now());
    }
    home_.reset();
  }

  void TellWhetherBusy() {
    bool busy;
    {
      const std::lock_guard<std::mutex> lock(mu_);
      busy = !live_.empty();
    }
    if (busy == busy_) return;
    if (home_->SetBusy(busy)) busy_ = busy;
  }

  void Take(Instant now) {
    const absl::Status status = home_->Take([this](std::string_view bytes) {
      ++notifications_;
      const std::optional<int64_t> key = wire::ParseNotification(bytes);
      NotificationKind kind = NotificationKind::kKnown;
      if (!key) {
        ++bad_;
        kind = NotificationKind::kBad;
      } else if (!leases_->DoneByKey(*key)) {
        ++late_;
        kind = NotificationKind::kLate;
      }
      Count(options_.metrics, Metric::kNotifications, {kind});
    });
    if (status.ok()) return;
    Log(options_.log, LogLevel::kError, StrCat(status.message(), "; starting another"));
    runs_.store(false);
    home_.reset();
    backoff_ = {};
    restart_at_ = now;
  }

  void Restart(Instant now) {
    absl::StatusOr<std::unique_ptr<AgentHome>> home = StartAgent();
    if (home.ok()) return Settle(*std::move(home));
    Log(options_.log, LogLevel::kError, StdView(home.status().message()));
    backoff_ = std::clamp(2 * backoff_, options_.restart_min, options_.restart_max);
    restart_at_ = SaturatingAdd(now, backoff_);
  }

  const NixlExportOptions options_;
  const std::unique_ptr<NixlListener> listener_;
  const SocketAddress advertised_;
  const UniqueFd wake_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  ArenaView arena_;
  LeaseSource* leases_ = nullptr;

  std::atomic<bool> stop_ = false;
  std::atomic<bool> runs_ = false;
  std::atomic<uint64_t> epoch_ = 0;
  std::atomic<uint64_t> arena_address_ = 0;
  std::atomic<uint64_t> notifications_ = 0, bad_ = 0, late_ = 0, handshakes_ = 0;

  std::mutex mu_;
  std::set<uint64_t> live_;  // generations of the leases that readers were told of

  // The thread's own.
  std::unique_ptr<AgentHome> home_;
  bool busy_ = false;
  Duration backoff_ = {};
  Instant restart_at_ = {};
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NixlExportEngine>> NixlExportEngine::Create(
    const NixlExportOptions& options) {
  if (absl::Status s = CheckListen(options.listen, options.advertise.has_value()); !s.ok()) {
    return s;
  }
  absl::StatusOr<std::unique_ptr<NixlListener>> listener = NixlListener::Create(options.listen);
  if (!listener.ok()) return listener.status();
  SocketAddress advertised = options.advertise.value_or((*listener)->address());
  if (advertised.port() == 0) advertised.set_port((*listener)->address().port());
  if (absl::Status s = advertised.CheckDialable(); !s.ok()) return s;
  return std::make_unique<Engine>(options, *std::move(listener), advertised);
}

}  // namespace tensorferry::engine
