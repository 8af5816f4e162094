#include <signal.h>
#include <unistd.h>

#include <thread>
#include <utility>
#include <vector>

#include "tensorferry/engine/fault/fault.h"

namespace tensorferry::engine {
namespace {

// Stands between an engine and the exporter, and both ways it passes on what the plan lets through.
class FaultExportEngine final : public ExportEngine, private LeaseSource {
 public:
  FaultExportEngine(std::unique_ptr<ExportEngine> inner, ExportFaults plan)
      : plan_(std::move(plan)), inner_(std::move(inner)) {}

  std::string_view transport() const override { return inner_->transport(); }
  absl::Status Start(const ArenaView& arena, LeaseSource* leases) override {
    leases_ = leases;
    return inner_->Start(arena, this);
  }
  wire::Way way() const override { return inner_->way(); }
  void Publish(const PublishedLease& lease) override { inner_->Publish(lease); }
  bool Retire(const wire::LeaseRef& ref) override { return inner_->Retire(ref); }
  bool one_sided() const override { return inner_->one_sided(); }
  bool for_smg() const override { return inner_->for_smg(); }
  bool preferred() const override { return inner_->preferred(); }
  uint64_t epoch() const override { return inner_->epoch(); }

 private:
  absl::StatusOr<PinnedBytes> Open(const wire::LeaseRef& ref, uint64_t offset,
                                   uint64_t length) override {
    const Fault fault = plan_(ref);
    switch (fault.kind) {
      case Fault::Kind::kKill:
        ::kill(::getpid(), SIGKILL);
        break;
      case Fault::Kind::kFail:
        return MakeError(fault.reason, "a fault that the test asked for");
      case Fault::Kind::kDelay:
        // The thread that serves is the one that must stall.
        std::this_thread::sleep_for(fault.delay);
        break;
      case Fault::Kind::kTear: {
        absl::StatusOr<PinnedBytes> pinned = leases_->Open(ref, offset, length);
        if (!pinned.ok() || pinned->bytes().empty()) return pinned;
        auto copy = std::make_shared<std::vector<std::byte>>(pinned->bytes().begin(),
                                                             pinned->bytes().end());
        (*copy)[copy->size() / 2] ^= std::byte{1};
        return PinnedBytes(*copy, [copy] {});
      }
      case Fault::Kind::kNone:
      case Fault::Kind::kHang:
        break;
    }
    return leases_->Open(ref, offset, length);
  }
  absl::StatusOr<std::span<const std::byte>> Locate(const wire::LeaseRef& ref, uint64_t offset,
                                                    uint64_t length) override {
    return leases_->Locate(ref, offset, length);
  }
  void Done(const wire::LeaseRef& ref) override { leases_->Done(ref); }
  bool DoneByKey(int64_t key) override { return leases_->DoneByKey(key); }
  void Quiesced(const wire::LeaseRef& ref) override { leases_->Quiesced(ref); }

  const ExportFaults plan_;
  LeaseSource* leases_ = nullptr;
  const std::unique_ptr<ExportEngine> inner_;  // last: stops before the rest goes
};

}  // namespace

std::unique_ptr<ExportEngine> WrapInFaults(std::unique_ptr<ExportEngine> inner, ExportFaults plan) {
  return std::make_unique<FaultExportEngine>(std::move(inner), std::move(plan));
}

}  // namespace tensorferry::engine
