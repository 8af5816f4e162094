#include "tensorferry/engine/ucx/module/ucx_pull_engine.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/net_way.h"
#include "tensorferry/engine/ucx/module/ucx_puller.h"

namespace tensorferry::engine {
namespace {

// One for each address family, made when it is first needed: the family of UCX's own sockets is one
// of its settings.
class Pullers {
 public:
  explicit Pullers(const UcxPullOptions& options) : options_(options) {}

  absl::StatusOr<UcxPuller*> For(bool v6) {
    const std::lock_guard<std::mutex> lock(mu_);
    std::unique_ptr<UcxPuller>& puller = pullers_[v6 ? 1 : 0];
    if (!puller) {
      absl::StatusOr<std::unique_ptr<UcxPuller>> made = UcxPuller::Create(options_, v6);
      if (!made.ok()) return made.status();
      puller = *std::move(made);
    }
    return puller.get();
  }

 private:
  const UcxPullOptions options_;
  std::mutex mu_;
  std::array<std::unique_ptr<UcxPuller>, 2> pullers_;
};

class Op final : public PullOp {
 public:
  // An op that cannot work.
  explicit Op(absl::Status status) : refused_(std::move(status)) {}

  Op(std::shared_ptr<Pullers> pullers, UcxPuller* puller, std::shared_ptr<UcxPull> pull,
     bool wants_done)
      : pullers_(std::move(pullers)),
        puller_(puller),
        pull_(std::move(pull)),
        wants_done_(wants_done) {
    puller_->Begin(pull_);
  }

  ~Op() override {
    if (pull_ && !pull_->done.load()) puller_->Abandon(pull_);
  }

  Progress Step() override {
    return !pull_ || pull_->done.load() ? Progress::kDone : Progress::kIdle;
  }

  void AddWaits(std::vector<pollfd>* waits, Instant* wake) const override {
    if (!pull_) {
      *wake = Instant::min();
      return;
    }
    // Its deadline is its thread's to mind.
    waits->push_back({.fd = pull_->event.get(), .events = POLLIN, .revents = 0});
  }

  absl::StatusOr<Landed> TakeResult() override {
    const absl::Status& status = pull_ ? pull_->result : refused_;
    if (!status.ok()) return status;
    return Landed{.bytes = pull_->into, .hold = nullptr};
  }

  void Acknowledge() override {
    if (pull_ && std::exchange(wants_done_, false)) puller_->Acknowledge(pull_);
  }

 private:
  const absl::Status refused_;
  const std::shared_ptr<Pullers> pullers_;
  UcxPuller* const puller_ = nullptr;
  const std::shared_ptr<UcxPull> pull_;
  bool wants_done_ = false;
};

class Engine final : public PullEngine {
 public:
  explicit Engine(const UcxPullOptions& options)
      : options_(options), pullers_(std::make_shared<Pullers>(options)) {}

  // That UCX works at all is told when the engine is made, not by the first pull.
  absl::Status Try() { return pullers_->For(/*v6=*/false).status(); }

  std::string_view transport() const override { return "ucx"; }
  bool borrows() const override { return false; }
  bool preferred() const override { return !options_.ucx.rdma_devices.empty(); }

  absl::Status CanTry(const wire::Descriptor& descriptor) const override {
    return Usable(descriptor).status();
  }

  std::unique_ptr<PullOp> Start(const PullRequest& request) override {
    absl::StatusOr<std::vector<SocketAddress>> addresses = Usable(*request.descriptor);
    if (!addresses.ok()) return std::make_unique<Op>(addresses.status());
    if (request.into.size() != request.length) {
      return std::make_unique<Op>(MakeError(
          Reason::kSizeMismatch, StrCat("engine/ucx: ", request.length, " bytes into memory of ",
                                        request.into.size(), ": they must be equal")));
    }
    const absl::StatusOr<UcxPuller*> puller = pullers_->For(addresses->front().is_v6());
    if (!puller.ok()) return std::make_unique<Op>(puller.status());
    auto pull = std::make_shared<UcxPull>();
    pull->event.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!pull->event) {
      return std::make_unique<Op>(SystemError(errno, "engine/ucx: eventfd (see ulimit -n)"));
    }
    // Those of the favourite's family: they share its worker.
    std::erase_if(*addresses, [v6 = addresses->front().is_v6()](const SocketAddress& address) {
      return address.is_v6() != v6;
    });
    pull->addresses = *std::move(addresses);
    pull->request = {.kind = wire::TcpRequest::Kind::kRead,
                     .instance = request.descriptor->instance,
                     .lease = request.descriptor->lease,
                     .offset = request.offset,
                     .length = request.length};
    pull->offers_get = OffersGet(*request.descriptor);
    pull->lease_bytes = request.descriptor->nbytes;
    pull->into = request.into;
    pull->into_owner = request.into_owner;
    pull->deadline = request.deadline;
    return std::make_unique<Op>(pullers_, *puller, std::move(pull), request.descriptor->wants_done);
  }

 private:
  // The addresses that may be dialled, or why there is none.
  absl::StatusOr<std::vector<SocketAddress>> Usable(const wire::Descriptor& descriptor) const {
    return UsableAddresses(descriptor, wire::NetWay::Kind::kUcx,
                           [this](const SocketAddress& address) { return CheckDial(address); });
  }

  // Every way over ucx does.
  static bool OffersGet(const wire::Descriptor& descriptor) {
    return std::ranges::all_of(descriptor.ways, [](const wire::Way& way) {
      const auto* net = std::get_if<wire::NetWay>(&way);
      return net == nullptr || net->kind != wire::NetWay::Kind::kUcx || net->one_sided;
    });
  }

  absl::Status CheckDial(const SocketAddress& address) const {
    if (absl::Status s = options_.allow.CheckDial(address); !s.ok()) return s;
    if (!UsesTcp(options_.ucx) || options_.ucx.trusted_network || address.IsLoopback()) {
      return absl::OkStatus();
    }
    return MakeError(
        Reason::kNotAllowed,
        StrCat("ucx: ", address.ToString(),
               " is on a network that is not trusted, and over tcp whoever reaches UCX's ports can "
               "write this process's memory; say --trusted-network if only trusted hosts do"));
  }

  const UcxPullOptions options_;
  // Ops keep them too.
  const std::shared_ptr<Pullers> pullers_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PullEngine>> CreateUcxPullEngine(const UcxPullOptions& options) {
  auto engine = std::make_unique<Engine>(options);
  if (absl::Status s = engine->Try(); !s.ok()) return s;
  return engine;
}

}  // namespace tensorferry::engine
