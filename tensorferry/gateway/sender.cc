#include "tensorferry/gateway/sender.h"

#include <unistd.h>

#include "tensorferry/base/contains.h"
#include "tensorferry/base/host.h"
#include "tensorferry/base/text.h"
#include "tensorferry/gateway/send_counts.h"
#include "tensorferry/wire/descriptor.h"

namespace tensorferry {
namespace {

std::optional<LaneReason> WhyUnexported(const absl::Status& exported) {
  if (exported.ok()) return std::nullopt;
  switch (ReasonOf(exported).value_or(Reason::kShutDown)) {
    case Reason::kArenaFull:
      return LaneReason::kArenaFull;
    case Reason::kDuplicateKey:
      return LaneReason::kDuplicateKey;
    default:
      return LaneReason::kShutDown;
  }
}

bool NextIsFile(const LaneDecision& decision) {
  return !decision.offers.empty() && decision.offers.front().transports.front() == "file";
}

}  // namespace

std::string Attachment::ToString() const {
  std::string out =
      StrCat("lane=", LaneName(lane), " transport=", transport, " reason=", LaneReasonName(reason));
  std::string_view before = " not=";
  for (const Rejection& r : rejected) {
    StrAppend(&out, before, LaneName(r.lane), ":", LaneReasonName(r.reason));
    before = ",";
  }
  return out;
}

absl::Status PullFailure::ToStatus() const {
  return reason ? MakeError(*reason, message) : absl::InternalError(message);
}

Sender::Sender(const Exporter* exporter, SenderOptions options)
    : exporter_(exporter),
      options_(std::move(options)),
      counts_(std::make_shared<SendCounts>(options_)) {
  facts_.host = ThisHost();
  facts_.descriptor_versions = {wire::kDescriptorVersion};
}

GatewayFacts Sender::FactsNow(const Lease& lease) const {
  GatewayFacts facts = facts_;
  if (exporter_ != nullptr) {
    facts.starting = exporter_->starting();
    if (lease.exported().ok()) {
      facts.transports = lease.transports();
    } else {
      // Why it is not served is then the tensor's matter, and no lack of a transport.
      for (EngineState& e : exporter_->engines())
        facts.transports.push_back(std::move(e.transport));
    }
  }
  if (options_.files) facts.transports.emplace_back("file");
  return facts;
}

std::optional<LaneReason> Sender::AgainstNixl(const Capabilities& worker,
                                              const std::string& name) const {
  if (exporter_ == nullptr) return std::nullopt;
  constexpr uint64_t kMaxRestingPercent = 25;
  const ExporterStats stats = exporter_->stats();
  if (stats.resting_bytes > stats.arena_bytes / 100 * kMaxRestingPercent) {
    return LaneReason::kResting;
  }
  const uint64_t epoch = exporter_->smg_epoch();
  if (epoch == 0) return LaneReason::kAgentRestarted;
  if (!worker.stock()) return std::nullopt;
  const std::lock_guard<std::mutex> lock(known_->mu);
  const auto known = known_->epochs.find(name);
  // Of one without a name nothing is known, so that it may be the first agent's.
  const bool may =
      known != known_->epochs.end() ? known->second == epoch : !name.empty() || epoch == 1;
  return may ? std::nullopt : std::optional(LaneReason::kAgentRestarted);
}

void Sender::RememberAgent(const std::string& name, uint64_t epoch) const {
  if (name.empty()) return;
  const std::lock_guard<std::mutex> lock(known_->mu);
  known_->epochs.try_emplace(name, epoch);
}

void Sender::WorkerRestarted(const std::string& name) const {
  const std::lock_guard<std::mutex> lock(known_->mu);
  known_->epochs.erase(name);
}

std::string Sender::FileOwner() { return StrCat("smg:", ::getpid()); }

absl::StatusOr<Sender::Plan> Sender::MakePlan(const Lease& lease, const Capabilities& worker,
                                              const AttachOptions& options) const {
  const uint64_t nbytes = lease.bytes().size();
  if (absl::Status s = CheckTensorBytes(options.shape, options.dtype, nbytes); !s.ok()) {
    return Annotate(s, "lease");
  }
  const GatewayFacts facts = FactsNow(lease);
  const bool serves_nixl = Contains(facts.transports, "nixl");
  LaneQuery query{options.policy ? *options.policy : options_.policy,
                  facts,
                  worker,
                  {.nbytes = nbytes,
                   .unexported = WhyUnexported(lease.exported()),
                   .against_nixl = serves_nixl ? AgainstNixl(worker, options.worker) : std::nullopt,
                   .engine = options.engine,
                   .modality = options.modality,
                   .role = options.role}};
  LaneDecision decision = DecideLanes(query);
  Plan plan;
  if (NextIsFile(decision)) {
    absl::StatusOr<engine::ShmFile> file = options_.files->Write(lease.bytes());
    if (file.ok()) {
      plan.attachment.file = std::make_shared<const engine::ShmFile>(*std::move(file));
    } else {
      Log(options_.log, LogLevel::kWarning, StrCat("attach: ", file.status().message()));
      counts_->FileFailed(options.engine);
      query.tensor.file_failed = true;
      decision = DecideLanes(query);
      if (decision.offers.empty()) {
        return counts_->Refused(options.engine, Annotate(file.status(), "lane shm: shm_failed"));
      }
    }
  }
  if (decision.offers.empty()) {
    return counts_->Refused(options.engine, NoLaneError(query, decision));
  }
  const Lane lane = decision.offers.front().lane;
  if (lane != Lane::kInline && !plan.attachment.file) {
    // Shared memory leaves the network as a second way in the same handle. The other way round the
    // worker, which prefers memory, would not take the lane that was asked for.
    const Lease::Ways ways{.shm = lane == Lane::kShm,
                           .remote = decision.Find(Lane::kRemote) != nullptr};
    const bool smg = decision.offers.front().transports.front() == "nixl";
    // Before the descriptor: an agent that starts in between is one that the worker does not know.
    const uint64_t epoch = smg ? exporter_->smg_epoch() : 0;
    absl::StatusOr<std::string> descriptor = smg ? lease.SmgDescriptor() : lease.Descriptor(ways);
    if (!descriptor.ok()) return counts_->Refused(options.engine, descriptor.status());
    if (smg && worker.stock()) RememberAgent(options.worker, epoch);
    plan.descriptor = *std::move(descriptor);
  }
  counts_->Decided(query, decision, options);
  plan.attachment = {.lane = lane,
                     .transport = decision.offers.front().transports.front(),
                     .reason = decision.reason,
                     .rejected = std::move(decision.rejected),
                     .may_go_inline = lane != Lane::kInline && decision.Find(Lane::kInline),
                     .file = std::move(plan.attachment.file)};
  counts_->Attached(options, nbytes, &plan.attachment);
  if (options_.log) {
    Log(options_.log, LogLevel::kDebug,
        StrCat("attach: nbytes=", nbytes, " ", plan.attachment.ToString()));
  }
  return plan;
}

void Sender::Ended(const Attachment& sent, const absl::Status& status,
                   std::string_view transport) const {
  counts_->Ended(sent, status, transport);
}

absl::StatusOr<Attachment> Sender::PlanInline(const Attachment& first,
                                              const PullFailure& failure) const {
  const bool may_help = failure.reason ? InlineMayHelp(*failure.reason) : failure.retryable;
  const absl::Status failed = failure.ToStatus();
  counts_->Ended(first, failed, /*transport=*/{});
  if (!first.may_go_inline || !may_help) return failed;
  Attachment again{.lane = Lane::kInline, .transport = "grpc", .reason = LaneReason::kPullFailed};
  again.rejected = first.rejected;
  again.rejected.push_back({first.lane, LaneReason::kPullFailed});
  counts_->Resent(first, failed, &again);
  if (options_.log) {
    Log(options_.log, LogLevel::kDebug,
        StrCat("attach: inline after ", LaneName(first.lane), " failed: ", failure.message));
  }
  return again;
}

}  // namespace tensorferry
