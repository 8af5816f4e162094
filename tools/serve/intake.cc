#include "tools/serve/intake.h"

#include <algorithm>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/worker/budget.h"

namespace tensorferry::tools {
namespace {

// About 80 bytes each, of the 8 KiB that gRPC takes.
constexpr size_t kMostReceipts = 64;

}  // namespace

Intake::Intake(const IntakeOptions* options, std::string request_id,
               std::optional<Duration> remaining)
    : options_(options),
      request_id_(std::move(request_id)),
      began_(clock_.Now()),
      budget_(PullBudget(remaining, options->pull_limit)) {}

void Intake::Start(Done done) {
  const auto alive = shared_from_this();  // the last tensor may end the request from another thread
  done_ = std::move(done);
  left_ = tensors_.size();
  if (tensors_.empty()) return Finish();
  for (Entry& entry : tensors_) {
    entry.receive(*options_->receiver,
                  {.timeout = budget_, .cancel = cancel_, .key = entry.key, .request = request_id_},
                  [intake = shared_from_this(), &entry](absl::StatusOr<Tensor> tensor) {
                    const Duration took = intake->clock_.Now() - intake->began_;
                    // Hashing takes longer than a puller's or gRPC's thread may be held up.
                    intake->options_->queue->Add(
                        [intake, &entry, took,
                         shared = std::make_shared<absl::StatusOr<Tensor>>(std::move(tensor))] {
                          intake->Arrived(entry, *shared, took);
                        });
                  });
  }
}

void Intake::Arrived(Entry& entry, absl::StatusOr<Tensor>& tensor, Duration took) {
  const absl::Status status = Report(entry, tensor, took);
  if (!status.ok()) options_->on_failure(request_id_, status);
  // Before the answer: the gateway may count on its memory as soon as it has it.
  tensor = Tensor{};
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (!status.ok() && failure_.ok()) failure_ = status;
    if (--left_ > 0) return;
  }
  Finish();
}

absl::Status Intake::Report(Entry& entry, const absl::StatusOr<Tensor>& tensor,
                            Duration took) const {
  if (!tensor.ok()) return tensor.status();
  if (cancel_.cancelled()) {
    return MakeError(Reason::kCancelled, StrCat("the request was cancelled, so that its ",
                                                tensor->bytes.size(), " bytes are not looked at"));
  }
  const Sha256Digest sha256 = Sha256(tensor->bytes);
  entry.receipt = {.lane = tensor->lane,
                   .transport = std::string(tensor->transport),
                   .nbytes = tensor->bytes.size(),
                   .sha256 = std::string(sha256.begin(), sha256.end())};
  return options_->on_tensor({.request_id = request_id_,
                              .name = entry.name,
                              .tensor = &*tensor,
                              .sha256 = sha256,
                              .took = took});
}

void Intake::Finish() {
  std::vector<Received> receipts;
  if (failure_.ok()) {
    for (Entry& entry : tensors_) receipts.push_back(std::move(entry.receipt));
  }
  // It may hold what holds this.
  std::exchange(done_, nullptr)(failure_, receipts);
}

void AddReceipts(grpc::ServerContextBase* context, std::span<const Received> receipts) {
  for (const Received& r : receipts.first(std::min(receipts.size(), kMostReceipts))) {
    AddReceived(context, r);
  }
}

}  // namespace tensorferry::tools
