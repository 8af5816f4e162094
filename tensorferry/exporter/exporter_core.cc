#include "tensorferry/exporter/exporter_core.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/wire/frame.h"

namespace tensorferry {
namespace {

// Long enough for any one-sided READ of a lease that has ended to have finished or failed.
constexpr Duration kRest = std::chrono::seconds(90);

arena::LeaseBookOptions BookOptions(const ExporterOptions& options, RandomSource& random) {
  return {.arena_bytes = options.arena_bytes,
          .max_leases = ExporterCore::kMaxLeases,
          .rest = kRest,
          .tombstone_ttl = options.lease_ttl,
          .first_generation = random.Next64()};
}

absl::Status Validate(const ExporterOptions& options) {
  if (options.arena_bytes == 0) {
    return absl::InvalidArgumentError(
        "arena_bytes is 0; give the arena at least one tensor's size");
  }
  if (options.lease_ttl <= Duration::zero()) {
    return absl::InvalidArgumentError("lease_ttl must be positive");
  }
  if (options.max_claim_percent == 0 || options.max_claim_percent > 100) {
    return absl::InvalidArgumentError(
        StrCat("max_claim_percent is ", options.max_claim_percent, "; it must be from 1 to 100"));
  }
  return absl::OkStatus();
}

LeaseEvent::Kind EventKind(arena::EndCause cause) {
  switch (cause) {
    case arena::EndCause::kExpired:
      return LeaseEvent::Kind::kExpired;
    case arena::EndCause::kCancelled:
      return LeaseEvent::Kind::kCancelled;
    case arena::EndCause::kReleased:
    case arena::EndCause::kDropped:
      break;
  }
  return LeaseEvent::Kind::kReleased;
}

LeaseEndCause CountedCause(arena::EndCause cause) {
  switch (cause) {
    case arena::EndCause::kReleased:
      return LeaseEndCause::kReleased;
    case arena::EndCause::kDropped:
      return LeaseEndCause::kDropped;
    case arena::EndCause::kCancelled:
      return LeaseEndCause::kCancelled;
    case arena::EndCause::kExpired:
      return LeaseEndCause::kExpired;
  }
  return LeaseEndCause::kDropped;
}

}  // namespace

absl::StatusOr<std::shared_ptr<ExporterCore>> ExporterCore::Create(ExporterOptions options) {
  if (absl::Status s = Validate(options); !s.ok()) return s;
  std::shared_ptr<ExporterCore> core(new ExporterCore(std::move(options)));
  if (absl::Status s = core->Start(); !s.ok()) {
    core->Close();
    return s;
  }
  return core;
}

ExporterCore::ExporterCore(ExporterOptions options)
    : options_(std::move(options)),
      clock_(options_.clock != nullptr ? options_.clock : &real_clock_),
      book_(BookOptions(options_, random_)) {
  instance_ = random_.Bytes<16>();
  if (options_.metrics) staged_at_.resize(kMaxLeases);
}

ExporterCore::~ExporterCore() { Close(); }

absl::Status ExporterCore::Start() {
  if (absl::Status s = PlanEngines(); !s.ok()) return s;
  if (options_.background) {
    if (absl::Status s = MapArena(); !s.ok()) return s;
    starter_ = std::thread([this] { StartInBackground(); });
  } else {
    // Addresses are had before a gigabyte is mapped for nothing.
    for (Slot& slot : slots_) {
      if (absl::Status s = MakeEngine(&slot); !s.ok()) return s;
    }
    if (absl::Status s = MapArena(); !s.ok()) return s;
    for (auto slot = slots_.begin(); slot != slots_.end();) {
      absl::Status status = RunEngine(&*slot);
      if (status.ok()) {
        ++slot;
        continue;
      }
      if (slot->make || !options_.on_left_out) return status;
      options_.on_left_out(slot->transport, status);
      slot = slots_.erase(slot);
    }
  }
  reaper_ = std::thread([this] { Reap(); });
  watch_ = Metrics::WatchBy(options_.metrics, [this](Gauges* gauges) { ShowGauges(gauges); });
  return absl::OkStatus();
}

absl::Status ExporterCore::MapArena() {
  absl::StatusOr<std::unique_ptr<arena::Mapping>> mapping =
      arena::Mapping::Create({.bytes = options_.arena_bytes,
                              .name = "tensorferry-arena",
                              .prefault = options_.prefault,
                              .log = options_.log});
  if (!mapping.ok()) return mapping.status();
  mapping_ = *std::move(mapping);
  return absl::OkStatus();
}

Staged ExporterCore::Stage(uint64_t nbytes) {
  auto state = std::make_unique<Staged::State>();
  state->core = shared_from_this();
  {
    std::unique_lock<std::mutex> lock(mu_);
    if (book_.NextDeadline() <= Now()) {
      // What has expired or rested enough may be just what this tensor needs.
      book_.Advance(Now());
    }
    if (accepting_) {
      absl::StatusOr<arena::LeaseBlock> block = book_.Stage(nbytes);
      if (block.ok()) {
        state->block = *block;
        state->bytes = {At(block->payload_offset), nbytes};
        if (!staged_at_.empty()) staged_at_[block->id] = Now();
      } else {
        state->arena_status = block.status();
        ++heap_fallbacks_;
        Count(options_.metrics, Metric::kHeapFallbacks, {});
      }
    } else {
      state->arena_status = MakeError(Reason::kShutDown, "the exporter is draining or closed");
    }
    Settle(std::move(lock));
  }
  if (state->block) {
    if (one_sided_) {
      // A reader with an old descriptor of this memory must not find a frame that looks whole.
      Poison(state->block->payload_offset, nbytes);
      SealStamps();
    }
    return Staged(std::move(state));
  }
  constexpr uint64_t kAlign = 64;
  if (nbytes <= UINT64_MAX - kAlign) {
    const uint64_t rounded = std::max<uint64_t>((nbytes + kAlign - 1) / kAlign * kAlign, kAlign);
    state->heap = {static_cast<std::byte*>(std::aligned_alloc(kAlign, rounded)), &std::free};
  }
  if (state->heap) {
    state->bytes = {state->heap.get(), nbytes};
  } else {
    state->arena_status =
        MakeError(Reason::kNoMemory, StrCat(nbytes, " bytes fit neither the arena (",
                                            state->arena_status.message(), ") nor the heap"));
  }
  return Staged(std::move(state));
}

Lease ExporterCore::Publish(std::unique_ptr<Staged::State> staged, const PublishOptions& options) {
  auto lease = std::make_unique<Lease::State>();
  lease->core = staged->core;
  lease->heap = std::move(staged->heap);
  lease->bytes = staged->bytes;
  lease->wants_done = options.readers > 0;
  if (options_.checksum) lease->checksum = XXH3_64bits(lease->bytes.data(), lease->bytes.size());
  if (!staged->block) {
    lease->key = options.key.value_or(0);
    lease->exported = staged->arena_status;
    return Lease(std::move(lease));
  }
  const uint64_t id = staged->block->id;
  lease->id = id;
  lease->ref.id = id;
  lease->payload_offset = staged->block->payload_offset;

  std::unique_lock<std::mutex> lock(mu_);
  if (!accepting_) {
    lease->key = options.key.value_or(0);
    lease->exported = MakeError(Reason::kShutDown, "the exporter is draining or closed");
    return Lease(std::move(lease));
  }
  const Instant now = Now();
  arena::PublishTerms terms{
      .readers = options.readers,
      .token = random_.Bytes<16>(),
      .expires = SaturatingAdd(now, options.ttl.value_or(options_.lease_ttl))};
  absl::StatusOr<uint64_t> generation;
  do {
    // [0, 2^63 - 2]: what SMG's own gateway mints.
    terms.key = options.key ? *options.key : static_cast<int64_t>(random_.Next64() % INT64_MAX);
    generation = book_.Publish(id, terms, now);
  } while (!generation.ok() && !options.key &&
           ReasonOf(generation.status()) == Reason::kDuplicateKey);
  lease->key = *terms.key;
  if (!generation.ok()) {
    lease->exported = generation.status();
    return Lease(std::move(lease));
  }
  lease->ref = {.id = id, .generation = *generation, .token = terms.token};
  publishing_.emplace(id, std::nullopt);
  Settle(std::move(lock));

  if (one_sided_) {
    std::byte* frame = At(staged->block->payload_offset) - wire::kFrameStampBytes;
    wire::WriteFrameHeader(frame, *generation);
    wire::WriteFrameTrailer(frame, lease->bytes.size(), *generation);
    SealStamps();
  }
  {
    const std::shared_lock<std::shared_mutex> engines_lock(engines_mu_);
    for (size_t i = 0; i < slots_.size(); ++i) {
      const Slot& slot = slots_[i];
      if (!slot.runs || slot.engine->for_smg()) continue;
      slot.engine->Publish({.ref = lease->ref,
                            .payload_offset = staged->block->payload_offset,
                            .nbytes = lease->bytes.size()});
      lease->served_by |= uint64_t{1} << i;
    }
  }
  std::optional<arena::Effect> ended_meanwhile;
  {
    const std::lock_guard<std::mutex> again(mu_);
    const auto it = publishing_.find(id);
    ended_meanwhile = it->second;
    publishing_.erase(it);
  }
  if (ended_meanwhile) Retire(*ended_meanwhile);
  return Lease(std::move(lease));
}

absl::StatusOr<std::string> ExporterCore::EncodeDescriptor(const Lease::State& lease,
                                                           Lease::Ways ways) const {
  wire::Descriptor d{.instance = instance_,
                     .lease = lease.ref,
                     .key = lease.key,
                     .nbytes = lease.bytes.size(),
                     .checksum = lease.checksum,
                     .wants_done = lease.wants_done,
                     .ways = {}};
  const std::shared_lock<std::shared_mutex> engines_lock(engines_mu_);
  for (const bool shm : {true, false}) {
    if (!(shm ? ways.shm : ways.remote)) continue;
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (Serves(i, lease) && std::holds_alternative<wire::LocalWay>(*slots_[i].way) == shm) {
        d.ways.push_back(*slots_[i].way);
      }
    }
  }
  if (d.ways.empty()) {
    const std::lock_guard<std::mutex> lock(mu_);
    if (closing_) return MakeError(Reason::kShutDown, "the exporter is closed");
    return MakeError(Reason::kLaneOff,
                     StrCat("this lease is served by ",
                            ways.shm ? "no shm (see local_socket, and Exporter::engines)" : "",
                            ways.shm && ways.remote ? " and " : "",
                            ways.remote ? "no remote (see listen, and Exporter::engines)" : ""));
  }
  return wire::EncodeDescriptor(d);
}

absl::StatusOr<std::string> ExporterCore::EncodeSmgDescriptor(const Lease::State& lease) {
  const std::shared_lock<std::shared_mutex> engines_lock(engines_mu_);
  const Slot* const slot = SmgSlot();
  if (slot == nullptr) {
    return MakeError(Reason::kLaneOff,
                     "this exporter runs no engine that SMG's workers can read from");
  }
  engine::ExportEngine& engine = *slot->engine;
  const auto readable = [&] {
    const std::lock_guard<std::mutex> lock(mu_);
    return book_.GiveOneSided(lease.ref);
  };
  if (absl::Status s = readable(); !s.ok()) return s;
  engine.Publish(
      {.ref = lease.ref, .payload_offset = lease.payload_offset, .nbytes = lease.bytes.size()});
  // It may have ended, and the engine been told, before the engine knew of it.
  if (absl::Status s = readable(); !s.ok()) {
    (void)engine.Retire(lease.ref);
    return s;
  }
  wire::SmgDescriptor d = std::get<wire::SmgDescriptor>(engine.way());
  d.slot_addr += lease.payload_offset - wire::kFrameStampBytes;
  d.gen = lease.ref.generation;
  d.key = lease.key;
  return wire::EncodeSmgDescriptor(d);
}

void ExporterCore::Poison(uint64_t payload_offset, uint64_t nbytes) {
  std::byte* const frame = At(payload_offset) - wire::kFrameStampBytes;
  wire::WriteFrameHeader(frame, 0);
  wire::WriteFrameTrailer(frame, nbytes, 0);
}

void ExporterCore::SealStamps() {
  // A full barrier, which TSan understands where it does not know fences.
  (void)stamps_sealed_.exchange(true);
}

void ExporterCore::Drop(uint64_t id) {
  std::unique_lock<std::mutex> lock(mu_);
  book_.Drop(id);
  Settle(std::move(lock));
}

void ExporterCore::Detach(uint64_t id) {
  std::unique_lock<std::mutex> lock(mu_);
  book_.Detach(id);
  Settle(std::move(lock));
}

void ExporterCore::ReadersAreDone(uint64_t id) {
  const std::lock_guard<std::mutex> lock(mu_);
  book_.ReadersAreDone(id);
}

uint64_t ExporterCore::smg_epoch() const {
  const std::shared_lock<std::shared_mutex> engines_lock(engines_mu_);
  const Slot* const slot = SmgSlot();
  return slot == nullptr ? 0 : slot->engine->epoch();
}

absl::Status ExporterCore::Cancel(int64_t key) {
  std::unique_lock<std::mutex> lock(mu_);
  absl::Status status = book_.Cancel(key);
  Settle(std::move(lock));
  return status;
}

absl::Status ExporterCore::Drain(Duration timeout) {
  std::unique_lock<std::mutex> lock(mu_);
  accepting_ = false;
  const Instant until = SaturatingAdd(real_clock_.Now(), timeout);
  const auto drained = [&] { return closing_ || book_.stats().published == 0; };
  const bool done = until == kNever ? (lease_ended_.wait(lock, drained), true)
                                    : lease_ended_.wait_until(lock, until, drained);
  if (done) return absl::OkStatus();
  return MakeError(Reason::kTimedOut,
                   StrCat(book_.stats().published, " leases are still readable after ",
                          std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count(),
                          " ms of draining"));
}

void ExporterCore::Close() {
  std::call_once(close_once_, [&] {
    watch_.End();
    {
      const std::lock_guard<std::mutex> lock(mu_);
      accepting_ = false;
      closing_ = true;
    }
    reaper_wakes_.notify_all();
    lease_ended_.notify_all();
    starter_wakes_.notify_all();
    if (reaper_.joinable()) reaper_.join();
    if (starter_.joinable()) starter_.join();
    std::vector<std::unique_ptr<engine::ExportEngine>> ending;
    {
      const std::unique_lock<std::shared_mutex> lock(engines_mu_);
      for (Slot& slot : slots_) {
        slot.runs = false;
        slot.status = MakeError(Reason::kShutDown, "the exporter is closed");
        ending.push_back(std::move(slot.engine));
      }
    }
  });
}

ExporterStats ExporterCore::stats() const {
  const std::lock_guard<std::mutex> lock(mu_);
  const arena::LeaseBookStats s = book_.stats();
  return {.arena_bytes = options_.arena_bytes,
          .free_bytes = s.free_bytes,
          .used_bytes = s.used_bytes,
          .resting_bytes = s.resting_bytes,
          .writing = s.writing,
          .published = s.published,
          .ended = s.ended,
          .resting = s.resting,
          .heap_fallbacks = heap_fallbacks_};
}

absl::StatusOr<engine::PinnedBytes> ExporterCore::Open(const wire::LeaseRef& ref, uint64_t offset,
                                                       uint64_t length) {
  std::unique_lock<std::mutex> lock(mu_);
  if (book_.NextDeadline() <= Now()) book_.Advance(Now());
  const absl::StatusOr<arena::LeaseBlock> block = book_.Open(ref, offset, length);
  Settle(std::move(lock));
  Count(options_.metrics, Metric::kLeaseReads, {block.status()});
  if (!block.ok()) return block.status();
  return engine::PinnedBytes({At(block->payload_offset), length}, [this, id = ref.id] {
    std::unique_lock<std::mutex> unpin_lock(mu_);
    book_.Unpin(id);
    Settle(std::move(unpin_lock));
  });
}

absl::StatusOr<std::span<const std::byte>> ExporterCore::Locate(const wire::LeaseRef& ref,
                                                                uint64_t offset, uint64_t length) {
  std::unique_lock<std::mutex> lock(mu_);
  if (book_.NextDeadline() <= Now()) book_.Advance(Now());
  const absl::StatusOr<arena::LeaseBlock> block = book_.Locate(ref, offset, length);
  Settle(std::move(lock));
  Count(options_.metrics, Metric::kLeaseReads, {block.status()});
  if (!block.ok()) return block.status();
  return std::span<const std::byte>(At(block->payload_offset), block->nbytes);
}

void ExporterCore::Done(const wire::LeaseRef& ref) {
  std::unique_lock<std::mutex> lock(mu_);
  // A reader of a lease that has ended since is no news.
  book_.Done(ref).IgnoreError();
  Settle(std::move(lock));
}

bool ExporterCore::DoneByKey(int64_t key) {
  std::unique_lock<std::mutex> lock(mu_);
  const bool readable = book_.DoneByKey(key).ok();
  Settle(std::move(lock));
  return readable;
}

void ExporterCore::Quiesced(const wire::LeaseRef& ref) { EngineLetGo(ref.id); }

void ExporterCore::EngineLetGo(uint64_t id) {
  std::unique_lock<std::mutex> lock(mu_);
  const auto it = retiring_.find(id);
  if (it == retiring_.end() || --it->second > 0) return;
  retiring_.erase(it);
  book_.Retired(id);
  Settle(std::move(lock));
}

void ExporterCore::Settle(std::unique_lock<std::mutex> lock) {
  if (book_.NextDeadline() < reaper_sleeps_until_) reaper_wakes_.notify_one();
  const arena::Effects effects = book_.TakeEffects();
  if (effects.empty()) return;
  bool ended = false;
  for (const arena::Effect& e : effects) {
    switch (e.kind) {
      case arena::Effect::Kind::kPoison:
        Poison(e.payload_offset, e.nbytes);
        break;
      case arena::Effect::Kind::kEnded:
        ended = true;
        if (options_.metrics) CountEnd(e);
        break;
      case arena::Effect::Kind::kFreed:
        // Whose readers all were done did not rest, and one who reads it again by itself must see
        // that it is another's by now: its stamps need not lie where those of the next lease do.
        if (one_sided_) Poison(e.payload_offset, e.nbytes);
        break;
    }
  }
  if (!ended) return;
  lease_ended_.notify_all();
  std::vector<arena::Effect> retire_now;
  for (const arena::Effect& e : effects) {
    if (e.kind != arena::Effect::Kind::kEnded) continue;
    const auto it = publishing_.find(e.id);
    if (it != publishing_.end()) {
      it->second = e;
    } else {
      retire_now.push_back(e);
    }
  }
  lock.unlock();
  for (const arena::Effect& e : retire_now) Retire(e);
  if (!options_.on_event) return;
  for (const arena::Effect& e : effects) {
    if (e.kind != arena::Effect::Kind::kEnded || e.cause == arena::EndCause::kDropped) continue;
    options_.on_event({.kind = EventKind(e.cause), .key = e.key, .nbytes = e.nbytes});
  }
}

void ExporterCore::CountEnd(const arena::Effect& ended) {
  options_.metrics->Add(Metric::kLeaseEnds, {CountedCause(ended.cause)});
  options_.metrics->Observe(Metric::kLeaseDuration, {}, Now() - staged_at_[ended.id]);
}

void ExporterCore::ShowGauges(Gauges* gauges) const {
  const ExporterStats s = stats();
  gauges->Add(Metric::kArenaBytes, {ArenaState::kFree}, s.free_bytes);
  gauges->Add(Metric::kArenaBytes, {ArenaState::kUsed}, s.used_bytes);
  gauges->Add(Metric::kArenaBytes, {ArenaState::kResting}, s.resting_bytes);
  gauges->Add(Metric::kLeases, {LeaseState::kWriting}, s.writing);
  gauges->Add(Metric::kLeases, {LeaseState::kPublished}, s.published);
  gauges->Add(Metric::kLeases, {LeaseState::kEnded}, s.ended);
  gauges->Add(Metric::kLeases, {LeaseState::kResting}, s.resting);
}

void ExporterCore::Retire(const arena::Effect& ended) {
  const std::shared_lock<std::shared_mutex> engines_lock(engines_mu_);
  {
    // One more than there are engines, so that a Quiesced that overtakes this loop cannot end it.
    const std::lock_guard<std::mutex> lock(mu_);
    retiring_.emplace(ended.id, slots_.size() + 1);
  }
  for (const Slot& slot : slots_) {
    if (!slot.runs || slot.engine->Retire({.id = ended.id, .generation = ended.generation})) {
      EngineLetGo(ended.id);
    }
  }
  EngineLetGo(ended.id);
}

void ExporterCore::Reap() {
  std::unique_lock<std::mutex> lock(mu_);
  while (!closing_) {
    reaper_sleeps_until_ = book_.NextDeadline();
    if (reaper_sleeps_until_ == kNever) {
      reaper_wakes_.wait(lock);
    } else if (Now() < reaper_sleeps_until_) {
      reaper_wakes_.wait_until(lock, reaper_sleeps_until_);
    }
    if (closing_ || Now() < book_.NextDeadline()) continue;
    book_.Advance(Now());
    Settle(std::move(lock));
    lock = std::unique_lock<std::mutex>(mu_);
  }
}

}  // namespace tensorferry
