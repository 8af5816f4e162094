// The exporter behind its handles: shared by Exporter, Staged and Lease, and what engines call back
// into.
//
// Two locks, always taken in this order; the second is never held while an engine or a callback is
// called, the first is only shared then:
//   engines_mu_  the engines; keeps them alive while they are called
//   mu_          the book of leases and everything beside it
#ifndef TENSORFERRY_EXPORTER_EXPORTER_CORE_H_
#define TENSORFERRY_EXPORTER_EXPORTER_CORE_H_

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tensorferry/arena/lease_book.h"
#include "tensorferry/arena/mapping.h"
#include "tensorferry/base/random.h"
#include "tensorferry/exporter/exporter.h"

namespace tensorferry {

class ExporterCore final : public engine::LeaseSource,
                           public std::enable_shared_from_this<ExporterCore> {
 public:
  static constexpr uint32_t kMaxLeases = 32768;

  static absl::StatusOr<std::shared_ptr<ExporterCore>> Create(ExporterOptions options);
  ~ExporterCore() override;

  Staged Stage(uint64_t nbytes);
  Lease Publish(std::unique_ptr<Staged::State> staged, const PublishOptions& options);
  absl::StatusOr<std::string> EncodeDescriptor(const Lease::State& lease, Lease::Ways ways) const;
  absl::StatusOr<std::string> EncodeSmgDescriptor(const Lease::State& lease);
  // The owner's handle of a block in the arena goes away.
  void Drop(uint64_t id);
  void Detach(uint64_t id);
  void ReadersAreDone(uint64_t id);
  uint64_t smg_epoch() const;

  absl::Status Cancel(int64_t key);
  absl::Status Drain(Duration timeout);
  void Close();

  void WaitPrefaulted() const { mapping_->WaitPrefaulted(); }
  const wire::InstanceId& instance() const { return instance_; }
  std::vector<std::string> transports() const;
  std::vector<std::string> TransportsOf(const Lease::State& lease) const;
  std::vector<EngineState> engines() const;
  std::vector<std::string> starting() const;
  absl::Status WaitStarted(Duration timeout) const;
  std::string listen_address() const;
  ExporterStats stats() const;

  // engine::LeaseSource
  absl::StatusOr<engine::PinnedBytes> Open(const wire::LeaseRef& ref, uint64_t offset,
                                           uint64_t length) override;
  absl::StatusOr<std::span<const std::byte>> Locate(const wire::LeaseRef& ref, uint64_t offset,
                                                    uint64_t length) override;
  void Done(const wire::LeaseRef& ref) override;
  bool DoneByKey(int64_t key) override;
  void Quiesced(const wire::LeaseRef& ref) override;

 private:
  explicit ExporterCore(ExporterOptions options);
  // An engine, running or not. Its place never changes, and is its bit in Lease::State::served_by.
  struct Slot {
    std::string transport;
    // Of a built-in one: binds. Another, which the caller gave, is there from the start.
    std::function<absl::StatusOr<std::unique_ptr<engine::ExportEngine>>()> make;
    std::unique_ptr<engine::ExportEngine> engine;
    bool runs = false;
    absl::Status status;           // why it does not
    std::optional<wire::Way> way;  // of one that runs, and is not for_smg
  };
  using Slots = std::vector<Slot>;

  absl::Status Start();
  absl::Status PlanEngines();
  absl::Status MapArena();
  absl::Status MakeEngine(Slot* slot);
  absl::Status RunEngine(Slot* slot);
  // Until all run, or the exporter closes.
  void StartInBackground();
  // With engines_mu_: whether the engine in this place may be named in the lease's descriptor.
  bool Serves(size_t place, const Lease::State& lease) const;
  const Slot* SmgSlot() const;
  Instant Now() const { return clock_->Now(); }
  std::byte* At(uint64_t offset) const { return mapping_->data() + offset; }

  // Carries out what the book asks for; called after every change of it. `lock` holds mu_ and is
  // released.
  void Settle(std::unique_lock<std::mutex> lock);
  // A lease has ended; with mu_ held.
  void CountEnd(const arena::Effect& ended);
  void ShowGauges(Gauges* gauges) const;
  // Takes both stamps from the memory at this offset.
  void Poison(uint64_t payload_offset, uint64_t nbytes);
  // Stores of stamps before this are seen before stores of payload after it, and the other way
  // round.
  void SealStamps();
  // Asks the engines to let go of an ended lease. Without locks.
  void Retire(const arena::Effect& ended);
  // One engine less at it; takes mu_.
  void EngineLetGo(uint64_t id);
  void Reap();

  ExporterOptions options_;
  const RealClock real_clock_;
  const Clock* const clock_;
  std::unique_ptr<arena::Mapping> mapping_;
  wire::InstanceId instance_;
  bool one_sided_ = false;  // an engine is: frames are written
  std::atomic<bool> stamps_sealed_ = false;

  mutable std::shared_mutex engines_mu_;
  Slots slots_;
  std::string listen_address_;
  mutable std::condition_variable_any engine_started_;  // with engines_mu_

  mutable std::mutex mu_;
  std::condition_variable reaper_wakes_;
  std::condition_variable lease_ended_;
  std::condition_variable starter_wakes_;
  RandomSource random_;  // before the book, whose first generation it gives
  arena::LeaseBook book_;
  // Leases whose engines are just being told of them; one that ends meanwhile is retired
  // afterwards.
  absl::flat_hash_map<uint64_t, std::optional<arena::Effect>> publishing_;
  // Ended leases, with the number of engines that have not let go yet.
  absl::flat_hash_map<uint64_t, size_t> retiring_;
  Instant reaper_sleeps_until_ = kNever;
  bool accepting_ = true;
  bool closing_ = false;
  uint64_t heap_fallbacks_ = 0;
  std::vector<Instant> staged_at_;  // by id, where somebody counts

  std::once_flag close_once_;
  std::thread reaper_, starter_;
  Metrics::Watch watch_;
};

struct Staged::State {
  std::shared_ptr<ExporterCore> core;
  std::optional<arena::LeaseBlock> block;                                 // in the arena
  std::unique_ptr<std::byte, void (*)(void*)> heap = {nullptr, nullptr};  // or here
  std::span<std::byte> bytes;
  absl::Status arena_status;  // why not in the arena
};

struct Lease::State {
  std::shared_ptr<ExporterCore> core;
  std::optional<uint64_t> id;  // in the arena, until dropped or detached
  std::unique_ptr<std::byte, void (*)(void*)> heap = {nullptr, nullptr};
  std::span<const std::byte> bytes;
  int64_t key = 0;
  absl::Status exported;
  wire::LeaseRef ref;
  bool wants_done = false;
  std::optional<uint64_t> checksum;
  uint64_t payload_offset = 0;  // of one in the arena
  uint64_t served_by = 0;       // engines but those for_smg, a bit for each place
};

}  // namespace tensorferry

#endif  // TENSORFERRY_EXPORTER_EXPORTER_CORE_H_
