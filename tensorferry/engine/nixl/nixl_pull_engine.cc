#include "tensorferry/engine/nixl/nixl_pull_engine.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "tensorferry/base/error.h"
#include "tensorferry/base/random.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/nixl/nixl_agent.h"
#include "tensorferry/engine/nixl/nixl_gateways.h"
#include "tensorferry/wire/bytes.h"
#include "tensorferry/wire/frame.h"
#include "tensorferry/wire/notification.h"

namespace tensorferry::engine {
namespace {

// NIXL offers nothing to wait on: how often to look.
constexpr Duration kReadLook = std::chrono::microseconds(50);
constexpr Duration kHandshakeLook = std::chrono::microseconds(500);

std::string HostName() {
  char name[65] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "host";
}

std::string UniqueAgentName() {
  RandomSource random;
  return StrCat("tensorferry-", HostName(), "-", ::getpid(), "-", random.Next64());
}

class Op final : public PullOp {
 public:
  explicit Op(absl::Status status) : result_(std::move(status)) {}

  Op(std::shared_ptr<NixlGateways> gateways, const PullRequest& request,
     const wire::SmgDescriptor& smg, const SocketAddress& gateway)
      : gateways_(std::move(gateways)),
        pull_(request),
        smg_(smg),
        gateway_(gateway),
        frame_(request.into.data() - wire::kFrameStampBytes,
               request.length + wire::kFrameOverhead) {}

  ~Op() override {
    if (!result_) GiveUp();
  }

  Progress Step() override {
    if (result_) return Progress::kDone;
    if (RealClock().Now() >= pull_.deadline) return TimedOut();
    if (!read_) return Connect();
    switch (read_->Poll()) {
      case NixlRead::State::kPending:
        return Progress::kIdle;
      case NixlRead::State::kFailed:
        return Renew(StrCat("the READ failed: ", NixlStatusText(read_->failure())));
      case NixlRead::State::kDone:
        return reading_header_ ? HeaderCame() : PayloadCame();
    }
    return Progress::kIdle;
  }

  void AddWaits(std::vector<pollfd>*, Instant* wake) const override {
    const Instant now = RealClock().Now();
    *wake = std::min({*wake, pull_.deadline, now + (read_ ? kReadLook : kHandshakeLook)});
    if (result_) *wake = Instant::min();
  }

  absl::StatusOr<Landed> TakeResult() override {
    if (!result_->ok()) return *result_;
    return Landed{.bytes = pull_.into, .hold = nullptr};
  }

  // The header's READ has told it.
  void Acknowledge() override {}

 private:
  Progress Connect() {
    NixlGateways::Connection connection =
        gateways_->Connect(gateway_, stale_, {smg_.slot_addr, frame_.size()});
    if (!connection.failure.ok()) return Finish(connection.failure);
    if (!connection.peer) return Progress::kIdle;
    connection_ = std::move(connection);
    if (connection_.agent->Covers(*connection_.peer, smg_.slot_addr, frame_.size())) {
      return Post(frame_, /*notification=*/{});
    }
    if (!renewed_) return Renew("its metadata do not cover this address");
    gateways_->Release(gateway_, Unread());
    return Finish(MakeError(
        Reason::kOutOfRange,
        StrCat("nixl: the gateway at ", gateway_.ToString(), " has registered no memory at 0x",
               absl::Hex(smg_.slot_addr), " for ", frame_.size(), " bytes")));
  }

  Progress Post(std::span<std::byte> into, std::string_view notification) {
    absl::StatusOr<std::unique_ptr<NixlRead>> read =
        connection_.agent->Read(connection_.peer, into, smg_.slot_addr, notification);
    if (!read.ok()) return Renew(StdView(read.status().message()));
    read_ = *std::move(read);
    return Progress::kMoved;
  }

  Progress PayloadCame() {
    if (absl::Status s = wire::CheckFrame(frame_, pull_.length, smg_.gen); !s.ok()) return Torn();
    reading_header_ = true;
    return Post(frame_.first(wire::kFrameStampBytes), wire::EncodeNotification(smg_.key));
  }

  Progress HeaderCame() {
    if (wire::LoadLe<uint64_t>(frame_.data()) != smg_.gen) return Torn();
    return Finish(absl::OkStatus());
  }

  // No notification: the lease is another one's by now, and so might be its key.
  Progress Torn() {
    return Finish(
        MakeError(Reason::kBadGeneration,
                  StrCat("nixl: slot generation mismatch: the memory of key ", smg_.key, " at ",
                         gateway_.ToString(),
                         " belongs to another lease by now; its lease ended before it was read")));
  }

  // Once: the gateway may have been restarted since its metadata were fetched.
  Progress Renew(std::string_view why) {
    read_.reset();
    reading_header_ = false;
    if (renewed_) {
      gateways_->Release(gateway_, Unread());
      return Finish(MakeError(Reason::kPeerClosed, StrCat("nixl: reading key ", smg_.key, " from ",
                                                          gateway_.ToString(), ", twice: ", why)));
    }
    gateways_->CountReconnect();
    renewed_ = true;
    stale_ = connection_.epoch;
    connection_ = {};
    return Progress::kMoved;
  }

  Progress TimedOut() {
    const std::string_view what = read_              ? "the READ is not over"
                                  : connection_.peer ? "the READ did not begin"
                                                     : "the handshake is not over";
    GiveUp();
    return Finish(MakeError(Reason::kTimedOut,
                            StrCat("nixl: key ", smg_.key, " of the gateway at ",
                                   gateway_.ToString(), ": the deadline passed and ", what,
                                   "; raise the timeout, or see whether the gateway is stopped")));
  }

  void GiveUp() {
    if (!gateways_) return;
    if (read_ && read_->Poll() == NixlRead::State::kPending) {
      gateways_->Quarantine(std::move(read_), pull_.into_owner, frame_.size(), gateway_, Unread());
    } else {
      gateways_->Release(gateway_, Unread());
    }
  }

  NixlGateways::Unread Unread() const { return {.key = smg_.key, .slot = smg_.slot_addr}; }

  Progress Finish(absl::Status status) {
    read_.reset();
    connection_ = {};
    result_ = std::move(status);
    return Progress::kDone;
  }

  const std::shared_ptr<NixlGateways> gateways_;
  const PullRequest pull_ = {};
  const wire::SmgDescriptor smg_ = {};
  const SocketAddress gateway_ = {};
  const std::span<std::byte> frame_ = {};
  NixlGateways::Connection connection_;
  uint64_t stale_ = 0;
  bool renewed_ = false;
  bool reading_header_ = false;
  std::unique_ptr<NixlRead> read_;
  std::optional<absl::Status> result_;
};

class Engine final : public PullEngine {
 public:
  Engine(std::shared_ptr<const NixlLibrary> library, std::shared_ptr<NixlAgent> agent,
         const NixlPullOptions& options)
      : options_(options),
        agent_(std::move(agent)),
        gateways_(std::make_shared<NixlGateways>(std::move(library), agent_, options)) {}

  std::string_view transport() const override { return "nixl"; }
  bool borrows() const override { return false; }
  uint64_t margin_bytes() const override { return wire::kFrameStampBytes; }

  void UseLanding(std::span<std::byte> memory, const std::shared_ptr<const void>& owner) override {
    landing_ = gateways_->UseLanding(memory, owner);
    if (!landing_.ok()) Log(options_.log, LogLevel::kError, StdView(landing_.message()));
  }

  absl::Status CanTry(const wire::Descriptor& descriptor) const override {
    if (wire::FindWay<wire::SmgDescriptor>(descriptor) != nullptr && !landing_.ok())
      return landing_;
    return Usable(descriptor).status();
  }

  std::unique_ptr<PullOp> Start(const PullRequest& request) override {
    absl::StatusOr<SocketAddress> gateway = Usable(*request.descriptor);
    if (!gateway.ok()) return std::make_unique<Op>(gateway.status());
    if (absl::Status s = agent_->CheckProcess(); !s.ok()) return std::make_unique<Op>(std::move(s));
    if (request.into.size() != request.length || request.offset != 0) {
      return std::make_unique<Op>(
          MakeError(Reason::kSizeMismatch, "engine/nixl reads whole leases into landing memory"));
    }
    return std::make_unique<Op>(gateways_, request,
                                *wire::FindWay<wire::SmgDescriptor>(*request.descriptor), *gateway);
  }

  void Decline(const wire::Descriptor& descriptor) override {
    const wire::SmgDescriptor* smg = wire::FindWay<wire::SmgDescriptor>(descriptor);
    if (smg == nullptr) return;
    const absl::StatusOr<SocketAddress> gateway = Dialled(*smg);
    if (gateway.ok()) {
      gateways_->Release(*gateway, {.key = smg->key, .slot = smg->slot_addr});
    }
  }

 private:
  absl::StatusOr<SocketAddress> Usable(const wire::Descriptor& descriptor) const {
    const wire::SmgDescriptor* smg = wire::FindWay<wire::SmgDescriptor>(descriptor);
    if (smg == nullptr) {
      return MakeError(Reason::kNoCommonWay, "the descriptor offers no way over nixl");
    }
    if (absl::Status s = wire::CheckUsable(*smg, descriptor.nbytes); !s.ok()) return s;
    return Dialled(*smg);
  }

  absl::StatusOr<SocketAddress> Dialled(const wire::SmgDescriptor& smg) const {
    absl::StatusOr<SocketAddress> address = SocketAddress::ParseHost(smg.host, smg.port);
    if (!address.ok()) return address.status();
    if (absl::Status s = options_.allow.CheckDial(*address); !s.ok()) return s;
    return address;
  }

  const NixlPullOptions options_;
  const std::shared_ptr<NixlAgent> agent_;
  // Ops keep it too: what they leave in quarantine outlives the engine by as long as its destructor
  // waits.
  const std::shared_ptr<NixlGateways> gateways_;
  absl::Status landing_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PullEngine>> CreateNixlPullEngine(
    std::shared_ptr<const NixlLibrary> library, const NixlPullOptions& options) {
  absl::StatusOr<std::shared_ptr<NixlAgent>> agent = NixlAgent::Create(
      library, {.name = options.agent_name.empty() ? UniqueAgentName() : options.agent_name,
                .progress_thread = false});
  if (!agent.ok()) return agent.status();
  return std::make_unique<Engine>(std::move(library), *std::move(agent), options);
}

}  // namespace tensorferry::engine
