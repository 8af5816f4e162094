#include "tensorferry/puller/pull_task.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_join.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/remote_choice.h"

namespace tensorferry {
namespace {

// The lease itself is the problem: no other way to it would fare better.
bool IsFinal(Reason reason) {
  switch (reason) {
    case Reason::kBadToken:
    case Reason::kLeaseEnded:
    case Reason::kOutOfRange:
    case Reason::kCancelled:
      return true;
    default:
      return false;
  }
}

constexpr uint64_t kAlignment = 64;

// Soon enough for who pressed Ctrl-C, and rare enough to cost nothing.
constexpr Duration kAskEvery = std::chrono::milliseconds(50);

std::string WaysText(const wire::Descriptor& descriptor) {
  std::string out;
  for (const wire::Way& way : descriptor.ways) {
    StrAppend(&out, out.empty() ? "" : ", ", wire::TransportOf(way));
  }
  return out.empty() ? "no transport that is known here" : out;
}

std::vector<std::string> NamesOf(const PullContext& context) {
  std::vector<std::string> names;
  for (const auto& engine : context.engines) names.emplace_back(engine->transport());
  return names;
}

// Engines stand in our order. Over ucx first only where the gateway, too, names it before tcp.
void OrderRemote(const wire::Descriptor& descriptor, const PullContext& context,
                 std::vector<engine::PullEngine*>* candidates) {
  const auto named = [&](std::string_view name) {
    return std::find_if(candidates->begin(), candidates->end(),
                        [&](const engine::PullEngine* e) { return e->transport() == name; });
  };
  const auto ucx = named("ucx"), tcp = named("tcp");
  if (tcp == candidates->end() || ucx >= tcp) return;
  std::vector<std::string> offered;
  for (const wire::Way& way : descriptor.ways) offered.emplace_back(wire::TransportOf(way));
  const engine::RemoteChoice choice =
      engine::ChooseRemote(engine::RemoteEndOf(offered), engine::RemoteEndOf(NamesOf(context)));
  if (choice.transport == "tcp") std::rotate(ucx, tcp, tcp + 1);
}

// A view of memory that an engine lends; the engine must not go before it.
class Borrowed {
 public:
  Borrowed(std::shared_ptr<engine::PullEngine> engine, std::shared_ptr<const void> hold,
           std::shared_ptr<Loans> loans, uint64_t nbytes)
      : engine_(std::move(engine)),
        hold_(std::move(hold)),
        loans_(std::move(loans)),
        nbytes_(nbytes) {
    ++loans_->views;
    loans_->bytes += nbytes_;
  }
  ~Borrowed() {
    --loans_->views;
    loans_->bytes -= nbytes_;
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

 private:
  const std::shared_ptr<engine::PullEngine> engine_;
  const std::shared_ptr<const void> hold_;
  const std::shared_ptr<Loans> loans_;
  const uint64_t nbytes_;
};

}  // namespace

PullTask::PullTask(PullContext* context, const Handle& handle, const PullOptions& options,
                   std::optional<std::span<std::byte>> into)
    : context_(context),
      cancel_(options.cancel),
      interrupted_(options.interrupted),
      request_(options.request),
      began_(context->clock.Now()),
      timeout_(options.timeout),
      waits_apart_(options.landing_timeout.has_value()),
      deadline_(SaturatingAdd(began_, options.timeout)),
      landing_deadline_(waits_apart_ ? SaturatingAdd(began_, *options.landing_timeout) : deadline_),
      nbytes_(handle.nbytes),
      into_(into) {
  if (interrupted_) ask_at_ = context->clock.Now() + kAskEvery;
  if (absl::Status s = Prepare(handle, options); !s.ok()) (void)Finish(std::move(s));
}

absl::Status PullTask::Prepare(const Handle& handle, const PullOptions& options) {
  absl::StatusOr<wire::Descriptor> decoded = DecodeHandle(handle, options.key);
  if (!decoded.ok()) return decoded.status();
  descriptor_ = *std::move(decoded);
  decoded_ = true;
  if (into_ && into_->size() != nbytes_) {
    return MakeError(Reason::kSizeMismatch,
                     StrCat("a buffer of ", into_->size(), " bytes for a tensor of ", nbytes_));
  }
  if (options.key && *options.key != descriptor_.key) {
    return MakeError(Reason::kKeyMismatch, StrCat("the descriptor belongs to key ", descriptor_.key,
                                                  ", the request to ", *options.key));
  }
  std::vector<absl::Status> refusals;
  for (const auto& engine : context_->engines) {
    absl::Status can = engine->CanTry(descriptor_);
    if (can.ok()) {
      candidates_.push_back(engine.get());
    } else if (ReasonOf(can) != Reason::kNoCommonWay) {
      StrAppend(&failures_, engine->transport(), ": ", can.message(), "; ");
      refusals.push_back(std::move(can));
    }
  }
  if (!candidates_.empty()) {
    OrderRemote(descriptor_, *context_, &candidates_);
    return absl::OkStatus();
  }
  if (refusals.empty()) {
    const std::vector<std::string> enabled = NamesOf(*context_);
    return MakeError(
        Reason::kNoCommonWay,
        StrCat("the descriptor offers ", WaysText(descriptor_), ", and here ",
               enabled.empty() ? "nothing" : absl::StrJoin(enabled, ", "), " is enabled"));
  }
  // The last one is of the most general transport: what keeps us from it is the cause.
  absl::Status cause = refusals.back();
  if (refusals.size() == 1) return cause;
  return MakeError(*ReasonOf(cause), failures_.substr(0, failures_.size() - 2));
}

PullTask::Progress PullTask::Step() {
  if (done()) return Progress::kDone;
  if (cancel_.cancelled() || Interrupted()) {
    return Finish(MakeError(Reason::kCancelled, "the pull was cancelled by its caller"));
  }
  if (context_->shutdown.cancelled()) {
    return Finish(MakeError(Reason::kShutDown, "the puller is closing"));
  }
  if (!op_) return Begin();
  const Progress progress = op_->Step();
  return progress == Progress::kDone ? Land() : progress;
}

bool PullTask::Interrupted() {
  if (ask_at_ == kNever || context_->clock.Now() < ask_at_) return false;
  if (interrupted_()) return true;
  ask_at_ = context_->clock.Now() + kAskEvery;
  return false;
}

PullTask::Progress PullTask::Begin() {
  engine::PullEngine* engine = candidates_[candidate_];
  const uint64_t margin = engine->margin_bytes();
  // In front of the payload a whole unit of alignment, so that it keeps its own.
  const uint64_t front = (margin + kAlignment - 1) / kAlignment * kAlignment;
  std::span<std::byte> memory;
  if (into_ && margin == 0) {
    memory = *into_;
  } else if (margin > 0 || ((copy_ || !engine->borrows()) && nbytes_ > 0)) {
    if (!landed_in_) {
      if (!ticket_) {
        absl::StatusOr<std::unique_ptr<LandingPool::Ticket>> ticket =
            context_->landing->Request(nbytes_ + front + margin);
        if (!ticket.ok()) return Fail(ticket.status());
        ticket_ = *std::move(ticket);
      }
      if (!ticket_->granted()) {
        if (context_->clock.Now() < landing_deadline_) return Progress::kIdle;
        return Finish(MakeError(
            Reason::kLandingFull,
            StrCat("no room for ", nbytes_, " bytes came free in time: ",
                   context_->landing->used_bytes(), " of ", context_->landing->capacity(),
                   " bytes of landing memory are in use and ", context_->landing->waiting(),
                   " pulls wait; release views sooner or raise landing_bytes")));
      }
      landed_in_ = ticket_->Take();
      ticket_.reset();
      if (waits_apart_) deadline_ = SaturatingAdd(context_->clock.Now(), timeout_);
    }
    memory = landed_in_->bytes().subspan(front, nbytes_);
  }
  asked_ = true;
  op_ = engine->Start({.descriptor = &descriptor_,
                       .offset = 0,
                       .length = nbytes_,
                       .into = memory,
                       .into_owner = landed_in_,
                       .deadline = AttemptDeadline()});
  return Progress::kMoved;
}

// What is left, or half of it while there is another way to fall back to.
Instant PullTask::AttemptDeadline() const {
  if (deadline_ == kNever || candidate_ + 1 == candidates_.size()) return deadline_;
  const Instant now = context_->clock.Now();
  return now + (deadline_ - now) / 2;
}

PullTask::Progress PullTask::Land() {
  engine::PullEngine* engine = candidates_[candidate_];
  absl::StatusOr<engine::Landed> landed = op_->TakeResult();
  if (!landed.ok()) {
    op_.reset();
    if (ReasonOf(landed.status()) == Reason::kClaimLimit && !copy_) {
      copy_ = true;
      return Progress::kMoved;
    }
    return Fail(landed.status());
  }
  if (landed->bytes.size() != nbytes_) {
    op_.reset();
    return Fail(MakeError(Reason::kProtocol, StrCat(engine->transport(), " delivered ",
                                                    landed->bytes.size(), " bytes of ", nbytes_)));
  }
  if (descriptor_.checksum &&
      XXH3_64bits(landed->bytes.data(), landed->bytes.size()) != *descriptor_.checksum) {
    op_.reset();
    return Fail(MakeError(Reason::kChecksum,
                          StrCat("the ", nbytes_, " bytes that arrived over ", engine->transport(),
                                 " are not those that were staged")));
  }
  op_->Acknowledge();
  if (into_ && landed->bytes.data() != into_->data()) {
    std::memcpy(into_->data(), landed->bytes.data(), nbytes_);
    landed->bytes = *into_;
    landed_in_.reset();
  }
  std::shared_ptr<const void> hold = landed_in_;
  const bool borrowed = landed->hold != nullptr;
  if (borrowed) {
    const auto owner = std::find_if(context_->engines.begin(), context_->engines.end(),
                                    [&](const auto& e) { return e.get() == engine; });
    hold = std::make_shared<Borrowed>(*owner, std::move(landed->hold), context_->loans, nbytes_);
  }
  op_.reset();
  return Finish(View(landed->bytes, engine->transport(), borrowed, std::move(hold)));
}

PullTask::Progress PullTask::Fail(const absl::Status& status) {
  const std::optional<Reason> reason = ReasonOf(status);
  const bool last = candidate_ + 1 == candidates_.size();
  if (last || (reason && IsFinal(*reason))) {
    return Finish(failures_.empty() ? status
                                    : Annotate(status, failures_.substr(0, failures_.size() - 2)));
  }
  const std::string_view failed = candidates_[candidate_]->transport();
  StrAppend(&failures_, failed, ": ", status.message(), "; ");
  ++candidate_;
  context_->fallbacks->Note(LabelValue::Transport(failed),
                            LabelValue::Transport(candidates_[candidate_]->transport()), status,
                            {.request = request_});
  copy_ = false;
  landed_in_.reset();  // the next engine may need another margin
  return Progress::kMoved;
}

PullTask::Progress PullTask::Finish(absl::StatusOr<View> result) {
  if (!result.ok() && !op_ && !asked_ && decoded_) {
    for (const auto& e : context_->engines) e->Decline(descriptor_);
  }
  op_.reset();
  ticket_.reset();
  landed_in_.reset();
  if (context_->metrics) CountResult(result.status());
  result_ = std::move(result);
  return Progress::kDone;
}

void PullTask::CountResult(const absl::Status& status) const {
  const auto transport = LabelValue::Transport(
      candidates_.empty() ? std::string_view() : candidates_[candidate_]->transport());
  context_->metrics->Add(Metric::kReceivedTensors, {transport, status});
  if (!status.ok()) return;
  context_->metrics->Add(Metric::kReceivedBytes, {transport}, nbytes_);
  context_->metrics->Observe(Metric::kReceiveDuration, {transport}, context_->clock.Now() - began_);
}

absl::StatusOr<View> PullTask::TakeResult() { return *std::move(result_); }

void PullTask::AddWaits(std::vector<pollfd>* waits, Instant* wake) const {
  if (const int fd = cancel_.fd(); fd >= 0) waits->push_back({fd, POLLIN, 0});
  waits->push_back({context_->shutdown.fd(), POLLIN, 0});
  *wake = std::min({*wake, ask_at_, ticket_ ? landing_deadline_ : deadline_});
  if (op_) {
    op_->AddWaits(waits, wake);
  } else if (ticket_) {
    waits->push_back({ticket_->fd(), POLLIN, 0});
  }
}

}  // namespace tensorferry
