#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tensorferry/engine/fault/fault.h"

namespace tensorferry::engine {
namespace {

class FaultPullOp final : public PullOp {
 public:
  FaultPullOp(PullEngine* inner, const PullRequest& request, const Fault& fault)
      : inner_(inner), request_(request), fault_(fault) {
    if (fault_.kind == Fault::Kind::kDelay) begins_ = SaturatingAdd(clock_.Now(), fault_.delay);
  }

  Progress Step() override {
    switch (fault_.kind) {
      case Fault::Kind::kKill:
        ::kill(::getpid(), SIGKILL);
        break;
      case Fault::Kind::kFail:
        return Progress::kDone;
      case Fault::Kind::kHang:
        return clock_.Now() < request_.deadline ? Progress::kIdle : Progress::kDone;
      case Fault::Kind::kDelay:
        if (const Instant now = clock_.Now(); now < begins_ && now < request_.deadline) {
          return Progress::kIdle;
        }
        break;
      case Fault::Kind::kNone:
      case Fault::Kind::kTear:
        break;
    }
    if (!op_) op_ = inner_->Start(request_);
    return op_->Step();
  }

  void AddWaits(std::vector<pollfd>* waits, Instant* wake) const override {
    if (op_) return op_->AddWaits(waits, wake);
    *wake = std::min({*wake, begins_, request_.deadline});
  }

  absl::StatusOr<Landed> TakeResult() override {
    if (fault_.kind == Fault::Kind::kFail) {
      return MakeError(fault_.reason, "a fault that the test asked for");
    }
    if (fault_.kind == Fault::Kind::kHang) {
      return MakeError(Reason::kTimedOut, "the pull hung, as the test asked for");
    }
    absl::StatusOr<Landed> landed = op_->TakeResult();
    if (fault_.kind == Fault::Kind::kTear && landed.ok() && !landed->bytes.empty()) Tear(&*landed);
    return landed;
  }

  void Acknowledge() override {
    if (op_) op_->Acknowledge();
  }

 private:
  static void Tear(Landed* landed) {
    // The original may be memory that this process can only read.
    auto copy =
        std::make_shared<std::vector<std::byte>>(landed->bytes.begin(), landed->bytes.end());
    (*copy)[copy->size() / 2] ^= std::byte{1};
    landed->bytes = *copy;
    landed->hold = copy;
  }

  PullEngine* const inner_;
  const PullRequest request_;
  const Fault fault_;
  const RealClock clock_;
  Instant begins_ = kNever;
  std::unique_ptr<PullOp> op_;
};

class FaultPullEngine final : public PullEngine {
 public:
  FaultPullEngine(std::unique_ptr<PullEngine> inner, PullFaults plan)
      : inner_(std::move(inner)), plan_(std::move(plan)) {}

  std::string_view transport() const override { return inner_->transport(); }
  absl::Status CanTry(const wire::Descriptor& descriptor) const override {
    return inner_->CanTry(descriptor);
  }
  bool borrows() const override { return inner_->borrows(); }
  bool preferred() const override { return inner_->preferred(); }
  std::unique_ptr<PullOp> Start(const PullRequest& request) override {
    const Fault fault = plan_(request);
    if (fault.kind == Fault::Kind::kNone) return inner_->Start(request);
    return std::make_unique<FaultPullOp>(inner_.get(), request, fault);
  }

 private:
  const std::unique_ptr<PullEngine> inner_;
  const PullFaults plan_;
};

}  // namespace

std::unique_ptr<PullEngine> WrapInFaults(std::unique_ptr<PullEngine> inner, PullFaults plan) {
  return std::make_unique<FaultPullEngine>(std::move(inner), std::move(plan));
}

}  // namespace tensorferry::engine
