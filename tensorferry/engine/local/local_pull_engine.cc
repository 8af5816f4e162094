#include "tensorferry/engine/local/local_pull_engine.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <variant>

#include "tensorferry/base/error.h"
#include "tensorferry/base/host.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/local/gateway_directory.h"
#include "tensorferry/engine/local/mapped_gateway.h"

namespace tensorferry::engine {
namespace {

// Copied per Step, so that a deadline or a cancellation is noticed within a millisecond or two.
constexpr size_t kCopyPiece = size_t{4} << 20;

class LocalPullOp final : public PullOp {
 public:
  LocalPullOp(GatewayDirectory* directory, const PullRequest& request, absl::Status failure)
      : directory_(directory), request_(request) {
    if (!failure.ok()) result_ = std::move(failure);
  }

  Progress Step() override;
  void AddWaits(std::vector<pollfd>* waits, Instant* wake) const override;
  absl::StatusOr<Landed> TakeResult() override;
  void Acknowledge() override;

 private:
  Progress Finish(absl::StatusOr<Landed> result);
  absl::Status TimedOut() const;
  // Sets gateway_, or ends the op, or leaves it waiting.
  void Connect(Instant now);
  Progress Copy();

  const wire::Descriptor& descriptor() const { return *request_.descriptor; }
  const std::string& path() const {
    return wire::FindWay<wire::LocalWay>(descriptor())->socket_path;
  }

  GatewayDirectory* const directory_;
  const PullRequest request_;
  GatewayDirectory::Joined connecting_;
  int attempts_ = 0;
  std::shared_ptr<MappedGateway> gateway_;
  std::shared_ptr<Claim> claim_;
  size_t copied_ = 0;
  std::optional<absl::StatusOr<Landed>> result_;
};

PullOp::Progress LocalPullOp::Finish(absl::StatusOr<Landed> result) {
  result_ = std::move(result);
  return Progress::kDone;
}

absl::Status LocalPullOp::TimedOut() const {
  return MakeError(
      Reason::kTimedOut,
      StrCat("lease ", descriptor().lease.id, ": the deadline passed ",
             gateway_ ? "while its bytes were copied" : "before the local gateway had answered"));
}

PullOp::Progress LocalPullOp::Step() {
  if (result_) return Progress::kDone;
  const Instant now = RealClock().Now();
  if (now >= request_.deadline) return Finish(TimedOut());
  if (!gateway_) Connect(now);
  if (result_) return Progress::kDone;
  if (!gateway_) return Progress::kIdle;
  if (!claim_) {
    const bool view = request_.into.empty();
    absl::StatusOr<Claim> claim =
        gateway_->Take(descriptor(), request_.offset, request_.length,
                       view ? MappedGateway::Use::kView : MappedGateway::Use::kCopy);
    if (!claim.ok()) return Finish(claim.status());
    claim_ = std::make_shared<Claim>(*std::move(claim));
    if (view) return Finish(Landed{.bytes = claim_->bytes(), .hold = nullptr});
  }
  return Copy();
}

PullOp::Progress LocalPullOp::Copy() {
  const auto from = claim_->bytes();
  const size_t piece = std::min(kCopyPiece, from.size() - copied_);
  std::memcpy(request_.into.data() + copied_, from.data() + copied_, piece);
  copied_ += piece;
  if (copied_ < from.size()) return Progress::kMoved;
  claim_.reset();
  return Finish(Landed{.bytes = request_.into, .hold = nullptr});
}

void LocalPullOp::Connect(Instant now) {
  const wire::InstanceId& wanted = descriptor().instance;
  for (;;) {
    if (!connecting_.attempt) {
      gateway_ = directory_->Find(path(), wanted);
      if (gateway_) return;
      if (absl::Status s = directory_->KnownFailure(path(), wanted, now); !s.ok()) {
        result_ = std::move(s);
        return;
      }
      connecting_ = directory_->Join(path(), now);
      ++attempts_;
    }
    std::optional<GatewayDirectory::Outcome> outcome = directory_->Drive(*connecting_.attempt, now);
    if (!outcome) return;
    const bool ours = std::exchange(connecting_, {}).begun_by_us;
    if (outcome->ok() && (**outcome)->instance() == wanted) {
      gateway_ = **std::move(outcome);
      return;
    }
    absl::Status failure = outcome->status();
    if (failure.ok()) {
      failure = MakeError(Reason::kWrongInstance, StrCat("lease ", descriptor().lease.id,
                                                         ": another gateway than the"
                                                         " descriptor's answers at \"",
                                                         path(), "\""));
    }
    // An attempt that others began, or that broke off, may have met the gateway that is just being
    // replaced by the one that we want.
    const bool again = attempts_ < 2 && (!ours || ReasonOf(failure) == Reason::kPeerClosed);
    if (again) continue;
    if (outcome->ok()) directory_->RememberWrongInstance(path(), wanted, failure, now);
    result_ = std::move(failure);
    return;
  }
}

void LocalPullOp::AddWaits(std::vector<pollfd>* waits, Instant* wake) const {
  if (connecting_.attempt) directory_->AddWaits(*connecting_.attempt, waits, wake);
  *wake = std::min(*wake, request_.deadline);
}

absl::StatusOr<Landed> LocalPullOp::TakeResult() {
  if (result_->ok() && claim_) {
    if (descriptor().wants_done) claim_->SetDone();
    (*result_)->hold = std::move(claim_);
  }
  return *std::move(result_);
}

void LocalPullOp::Acknowledge() {
  const bool copied = !request_.into.empty();
  if (copied && gateway_ && descriptor().wants_done) gateway_->TellDone(descriptor().lease);
}

class LocalPullEngine final : public PullEngine {
 public:
  explicit LocalPullEngine(const LocalPullOptions& options)
      : owner_(::getpid()),
        boot_id_(options.boot_id.value_or(ThisHost().boot_id)),
        directory_(options.connect_timeout, options.log, options.metrics) {}

  std::string_view transport() const override { return "local"; }
  bool borrows() const override { return true; }
  absl::Status CanTry(const wire::Descriptor& descriptor) const override;
  std::unique_ptr<PullOp> Start(const PullRequest& request) override {
    return std::make_unique<LocalPullOp>(&directory_, request, Check(request));
  }

 private:
  // Whether the way is one of ours at all, without looking at the file.
  absl::Status CheckWay(const wire::Descriptor& descriptor) const;
  absl::Status Check(const PullRequest& request) const;

  const pid_t owner_;
  const wire::BootId boot_id_;
  GatewayDirectory directory_;
};

absl::Status LocalPullEngine::CheckWay(const wire::Descriptor& descriptor) const {
  const wire::LocalWay* way = wire::FindWay<wire::LocalWay>(descriptor);
  if (way == nullptr) {
    return MakeError(Reason::kNoCommonWay, "the descriptor offers no local way");
  }
  if (::getpid() != owner_) {
    return MakeError(Reason::kLaneOff,
                     "the local engine was made before this process was forked; make a new puller"
                     " in the child");
  }
  if (way->boot_id != boot_id_ || boot_id_ == wire::BootId{}) {
    return MakeError(Reason::kOtherHost,
                     StrCat("the gateway of \"", way->socket_path, "\" runs on another host"));
  }
  return absl::OkStatus();
}

absl::Status LocalPullEngine::CanTry(const wire::Descriptor& descriptor) const {
  if (absl::Status s = CheckWay(descriptor); !s.ok()) return s;
  const std::string& path = wire::FindWay<wire::LocalWay>(descriptor)->socket_path;
  if (directory_.Find(path, descriptor.instance)) return absl::OkStatus();
  absl::Status known = directory_.KnownFailure(path, descriptor.instance, RealClock().Now());
  if (!known.ok()) return known;
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) {
    return MakeError(Reason::kOtherHost,
                     StrCat("the gateway's socket \"", path, "\" cannot be seen from here (",
                            std::strerror(errno),
                            "): it ended, or runs in another container;"
                            " share the socket's directory"));
  }
  return absl::OkStatus();
}

absl::Status LocalPullEngine::Check(const PullRequest& request) const {
  if (absl::Status s = CheckWay(*request.descriptor); !s.ok()) return s;
  if (request.into.empty() || request.into.size() == request.length) return absl::OkStatus();
  return MakeError(Reason::kSizeMismatch, StrCat("memory of ", request.into.size(),
                                                 " bytes for a pull of ", request.length));
}

}  // namespace

std::unique_ptr<PullEngine> CreateLocalPullEngine(const LocalPullOptions& options) {
  return std::make_unique<LocalPullEngine>(options);
}

}  // namespace tensorferry::engine
