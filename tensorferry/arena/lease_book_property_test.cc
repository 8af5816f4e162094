// Long random histories of a LeaseBook against a model that is plain lists, searched from end to
// end.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tensorferry/arena/lease_book.h"
#include "tensorferry/base/error.h"

namespace tensorferry::arena {
namespace {

using std::chrono::seconds;
using Kind = Effect::Kind;

constexpr uint64_t kArena = 64 << 10;
constexpr uint32_t kMaxLeases = 48;
constexpr uint32_t kMaxTombstones = 5;
constexpr Duration kRest = seconds(90);
constexpr Duration kTombstoneTtl = seconds(210);

// Sanitizers make a step some ten times slower.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kMaxSteps = 3000;
#else
constexpr int kMaxSteps = 20'000;
#endif

LeaseBookOptions Options() {
  return {.arena_bytes = kArena,
          .max_leases = kMaxLeases,
          .rest = kRest,
          .tombstone_ttl = kTombstoneTtl,
          .max_tombstones = kMaxTombstones,
          .first_generation = UINT64_MAX - 100};
}

// ---- The model ----

struct ModelLease {
  LeaseBlock block;
  enum { kWriting, kReadable, kEnded, kResting } state = kWriting;
  bool owner = true;
  bool engines = false;
  bool end_taken = false;  // its kEnded was handed out, so that Retired may be called
  uint32_t readers_at_it = 0;
  wire::LeaseRef ref;
  PublishTerms terms;
  uint32_t done = 0;
  std::optional<Instant> rests_until;

  // With the room of both stamps, in whole granules.
  uint64_t begin() const { return block.payload_offset - 64; }
  uint64_t end() const { return (block.payload_offset + block.nbytes + 8 + 63) / 64 * 64; }
};

struct ModelTombstone {
  int64_t key;
  uint32_t awaited;
  std::optional<Instant> expires;
};

struct Model {
  std::list<ModelLease> leases;  // those that hold memory
  std::list<ModelTombstone> tombstones;
  std::vector<Effect> effects;
  Instant now = Instant::min();

  void Note(Kind kind, const ModelLease& lease, EndCause cause = EndCause::kDropped) {
    effects.push_back({.kind = kind,
                       .id = lease.block.id,
                       .generation = lease.ref.generation,
                       .cause = cause,
                       .key = lease.terms.key,
                       .payload_offset = lease.block.payload_offset,
                       .nbytes = lease.block.nbytes});
  }

  ModelLease* ReadableByKey(int64_t key) {
    for (ModelLease& lease : leases) {
      if (lease.state == ModelLease::kReadable && lease.terms.key == key) return &lease;
    }
    return nullptr;
  }

  void End(ModelLease& lease, EndCause cause) {
    lease.state = ModelLease::kEnded;
    uint32_t awaited = lease.terms.readers > 0 ? lease.terms.readers - lease.done : 0;
    if (lease.terms.readers == 0 && lease.terms.one_sided && lease.done == 0) awaited = 1;
    if (lease.terms.key.has_value() && awaited > 0) {
      tombstones.push_back({*lease.terms.key, awaited, std::nullopt});
      if (tombstones.size() > kMaxTombstones) tombstones.pop_front();
    }
    Note(Kind::kEnded, lease, cause);
  }

  void CountDone(ModelLease& lease) {
    if (++lease.done == lease.terms.readers) End(lease, EndCause::kReleased);
  }

  // A pin went.
  void Settle(ModelLease& lease) {
    if (lease.owner || lease.engines || lease.readers_at_it > 0) return;
    const bool counted = lease.terms.readers > 0 && lease.done == lease.terms.readers;
    if (lease.terms.one_sided && !counted) {
      lease.state = ModelLease::kResting;
      Note(Kind::kPoison, lease);
    } else {
      Free(lease);
    }
  }

  void Free(ModelLease& lease) {
    Note(Kind::kFreed, lease);
    leases.remove_if([&](const ModelLease& other) { return &other == &lease; });
  }

  void Observe(Instant time) {
    now = std::max(now, time);
    for (ModelLease& lease : leases) {
      if (lease.state == ModelLease::kResting && !lease.rests_until.has_value()) {
        lease.rests_until = now + kRest;
      }
    }
    for (ModelTombstone& stone : tombstones) {
      if (!stone.expires.has_value()) stone.expires = now + kTombstoneTtl;
    }
    tombstones.remove_if([&](const ModelTombstone& stone) { return *stone.expires <= now; });
  }

  Instant DeadlineOf(const ModelLease& lease) const {
    if (lease.state == ModelLease::kReadable) return lease.terms.expires;
    if (lease.state == ModelLease::kResting) return lease.rests_until.value_or(now);
    return kNever;
  }

  Instant NextDeadline() const {
    Instant next = kNever;
    for (const ModelLease& lease : leases) {
      // A rest that has no date yet is due at once, whatever else there is.
      if (lease.state == ModelLease::kResting && !lease.rests_until.has_value()) return now;
      next = std::min(next, DeadlineOf(lease));
    }
    return next;
  }

  void Advance(Instant time) {
    Observe(time);
    for (Instant next = NextDeadline(); next <= now; next = NextDeadline()) {
      ModelLease* due = nullptr;
      for (ModelLease& lease : leases) {
        if (DeadlineOf(lease) != next) continue;
        if (due == nullptr || lease.block.id < due->block.id) due = &lease;
      }
      if (due->state == ModelLease::kReadable) {
        End(*due, EndCause::kExpired);
      } else {
        Free(*due);
      }
    }
  }

  LeaseBookStats Stats() const {
    LeaseBookStats stats;
    for (const ModelLease& lease : leases) {
      const bool resting = lease.state == ModelLease::kResting;
      stats.writing += lease.state == ModelLease::kWriting;
      stats.published += lease.state == ModelLease::kReadable;
      stats.ended += lease.state == ModelLease::kEnded;
      stats.resting += resting;
      (resting ? stats.resting_bytes : stats.used_bytes) += lease.end() - lease.begin();
    }
    stats.free_bytes = kArena - stats.used_bytes - stats.resting_bytes;
    return stats;
  }

  uint64_t LargestGap() const {
    std::vector<std::pair<uint64_t, uint64_t>> held = {{kArena, kArena}};
    for (const ModelLease& lease : leases) held.emplace_back(lease.begin(), lease.end());
    std::sort(held.begin(), held.end());
    uint64_t largest = 0, at = 0;
    for (const auto& [begin, end] : held) {
      largest = std::max(largest, begin - at);
      at = end;
    }
    return largest;
  }
};

// ---- Histories ----

enum class Call {
  kStage,
  kPublish,
  kDrop,
  kDetach,
  kOpen,
  kUnpin,
  kDone,
  kDoneByKey,
  kCancel,
  kRetired,
  kAdvance,
  kTakeEffects,
};
constexpr std::array<std::string_view, 12> kCallNames = {
    "Stage", "Publish",   "Drop",   "Detach",  "Open",    "Unpin",
    "Done",  "DoneByKey", "Cancel", "Retired", "Advance", "TakeEffects"};

// One call; what the numbers mean depends on it, so that any history is one that can happen.
struct Step {
  Call call;
  uint32_t which;  // of the leases that the call can be made on
  uint32_t a;
  uint32_t b;
};

std::ostream& operator<<(std::ostream& os, const Step& step) {
  return os << kCallNames[static_cast<size_t>(step.call)] << '(' << step.which << ',' << step.a
            << ',' << step.b << ')';
}

rc::Gen<std::vector<Step>> Histories(int max_steps) {
  const auto number = rc::gen::inRange<uint32_t>(0, 1 << 20);
  const auto call = rc::gen::weightedElement<Call>({{10, Call::kStage},
                                                    {10, Call::kPublish},
                                                    {5, Call::kDrop},
                                                    {3, Call::kDetach},
                                                    {8, Call::kOpen},
                                                    {8, Call::kUnpin},
                                                    {8, Call::kDone},
                                                    {6, Call::kDoneByKey},
                                                    {2, Call::kCancel},
                                                    {10, Call::kRetired},
                                                    {6, Call::kAdvance},
                                                    {12, Call::kTakeEffects}});
  return rc::gen::resize(max_steps, rc::gen::container<std::vector<Step>>(
                                        rc::gen::construct<Step>(call, number, number, number)));
}

// Makes the calls to the book and to the model, and compares all that can be seen.
class History {
 public:
  void Run(const Step& step) {
    switch (step.call) {
      case Call::kStage:
        Stage(step.a % 16 == 0 ? uint64_t{0} - step.b % 300 : step.b % SizeClass(step.a));
        break;
      case Call::kPublish:
        Publish(step);
        break;
      case Call::kDrop:
        if (ModelLease* lease = Pick(step.which, [](const auto& l) { return l.owner; }))
          Drop(*lease);
        break;
      case Call::kDetach:
        Detach(step.which);
        break;
      case Call::kOpen:
        Open(Ref(step), step.b % 16 == 0 ? UINT64_MAX - step.b % 500 : step.b % 400,
             step.b / 400 % 400);
        break;
      case Call::kUnpin:
        if (ModelLease* lease =
                Pick(step.which, [](const auto& l) { return l.readers_at_it > 0; })) {
          Unpin(*lease);
        }
        break;
      case Call::kDone:
        Done(Ref(step));
        break;
      case Call::kDoneByKey:
        DoneByKey(Key(step.a));
        break;
      case Call::kCancel:
        Cancel(Key(step.a));
        break;
      case Call::kRetired:
        if (ModelLease* lease =
                Pick(step.which, [](const auto& l) { return l.engines && l.end_taken; })) {
          Retired(*lease);
        }
        break;
      case Call::kAdvance:
        clock_ += step.a % 20 == 0 ? kTombstoneTtl : seconds(step.a % 20);
        // Threads that read the clock first may arrive last.
        Advance(clock_ - seconds(step.b % 3));
        break;
      case Call::kTakeEffects:
        TakeEffects();
        break;
    }
    Compare();
  }

  // Everybody lets go, and time passes: then the arena must be in one piece again.
  void Finish() {
    const auto all = [&](auto&& can, auto&& call) {
      while (ModelLease* lease = Pick(0, can)) call(*lease);
    };
    all([](const auto& l) { return l.owner; }, [&](ModelLease& l) { Drop(l); });
    all([](const auto& l) { return l.readers_at_it > 0; }, [&](ModelLease& l) { Unpin(l); });
    clock_ += seconds(100'000);
    Advance(clock_);
    TakeEffects();
    all([](const auto& l) { return l.engines; }, [&](ModelLease& l) { Retired(l); });
    Advance(clock_);
    Advance(clock_ + kRest);
    TakeEffects();
    Compare();
    RC_ASSERT(model_.leases.empty());
    RC_ASSERT(ended_ == published_);
    RC_ASSERT(book_.NextDeadline() == kNever);
    RC_ASSERT(book_.Stage(kArena - 64 - 8).ok());
  }

 private:
  static uint64_t SizeClass(uint32_t a) { return std::array{100, 2000, 20'000, 66'000}[a % 4]; }
  static int64_t Key(uint32_t a) { return static_cast<int64_t>(a % 6) - 1; }
  static void ExpectStatus(const absl::Status& status, std::optional<Reason> expected) {
    RC_ASSERT(status.ok() == !expected.has_value());
    RC_ASSERT(ReasonOf(status) == expected);
  }

  ModelLease* Pick(uint32_t which, const std::function<bool(const ModelLease&)>& can) {
    std::vector<ModelLease*> candidates;
    for (ModelLease& lease : model_.leases) {
      if (can(lease)) candidates.push_back(&lease);
    }
    return candidates.empty() ? nullptr : candidates[which % candidates.size()];
  }

  // A reference to a lease of any age, whole or with one thing wrong.
  wire::LeaseRef Ref(const Step& step) const {
    if (refs_.empty()) return {.id = step.a, .generation = step.b};
    // Mostly of the last few, which may still live.
    const size_t recent = std::min<size_t>(refs_.size(), step.a % 8 == 0 ? refs_.size() : 24);
    wire::LeaseRef ref = refs_[refs_.size() - 1 - step.which % recent];
    switch (step.a % 16) {
      case 1:
        ref.token[step.b % 16] ^= static_cast<uint8_t>(1 << step.b % 8);
        break;
      case 2:
        ref.generation = step.b % 2 == 0 ? ref.generation - 1 : 0;
        break;
      case 3:
        ref.id = step.b % (2 * kMaxLeases);
        break;
      case 4:
        ref.id = UINT64_MAX - step.b % 2;
        break;
      default:
        break;
    }
    return ref;
  }

  void Stage(uint64_t nbytes) {
    const absl::StatusOr<LeaseBlock> block = book_.Stage(nbytes);
    if (!block.ok()) {
      ExpectStatus(block.status(), Reason::kArenaFull);
      const uint64_t gap = model_.LargestGap();
      RC_ASSERT(model_.leases.size() == kMaxLeases || gap < 64 + 8 || nbytes > gap - 64 - 8);
      return;
    }
    ModelLease lease;
    lease.block = *block;
    RC_ASSERT(block->nbytes == nbytes);
    RC_ASSERT(block->payload_offset % 64 == 0u);
    RC_ASSERT(block->payload_offset >= 64u);
    RC_ASSERT(lease.end() <= kArena);
    for (const ModelLease& other : model_.leases) {
      RC_ASSERT(other.block.id != block->id);
      RC_ASSERT(lease.end() <= other.begin() || lease.begin() >= other.end());
    }
    model_.leases.push_back(lease);
  }

  void Publish(const Step& step) {
    ModelLease* lease =
        Pick(step.which, [](const auto& l) { return l.state == ModelLease::kWriting; });
    if (lease == nullptr) return;
    PublishTerms terms;
    if (step.a % 4 != 0) terms.key = Key(step.b);
    terms.readers = step.a / 4 % 4;
    terms.one_sided = step.a / 16 % 2 == 0;
    terms.token.fill(static_cast<uint8_t>(step.b));
    terms.token[0] = static_cast<uint8_t>(published_);
    if (step.a / 32 % 3 != 0) terms.expires = clock_ + seconds(step.b / 8 % 60);

    // At once, or as the readers are told of it.
    PublishTerms at_first = terms;
    const bool given_later = terms.one_sided && step.a / 96 % 2 == 0;
    if (given_later) at_first.one_sided = false;
    const absl::StatusOr<uint64_t> generation = book_.Publish(lease->block.id, at_first, clock_);
    model_.Observe(clock_);
    if (terms.key.has_value() && model_.ReadableByKey(*terms.key) != nullptr) {
      ExpectStatus(generation.status(), Reason::kDuplicateKey);
      return;
    }
    ExpectStatus(generation.status(), std::nullopt);
    RC_ASSERT(*generation != 0u);
    RC_ASSERT(generations_.insert(*generation).second);
    lease->state = ModelLease::kReadable;
    lease->engines = true;
    lease->terms = terms;
    lease->ref = {.id = lease->block.id, .generation = *generation, .token = terms.token};
    if (given_later) RC_ASSERT(book_.GiveOneSided(lease->ref).ok());
    refs_.push_back(lease->ref);
    ++published_;
  }

  void Drop(ModelLease& lease) {
    book_.Drop(lease.block.id);
    if (lease.state == ModelLease::kReadable) model_.End(lease, EndCause::kDropped);
    lease.owner = false;
    model_.Settle(lease);
  }

  void Detach(uint32_t which) {
    // Without a time to live nothing might ever end it.
    ModelLease* lease = Pick(which, [](const auto& l) {
      return l.owner && l.state != ModelLease::kWriting && l.terms.expires != kNever;
    });
    if (lease == nullptr) return;
    book_.Detach(lease->block.id);
    lease->owner = false;
    model_.Settle(*lease);
  }

  // The readable lease that `ref` names, or why there is none.
  ModelLease* Find(const wire::LeaseRef& ref, std::optional<Reason>& why) {
    for (ModelLease& lease : model_.leases) {
      if (lease.state != ModelLease::kReadable || lease.ref.id != ref.id ||
          lease.ref.generation != ref.generation) {
        continue;
      }
      if (lease.ref.token == ref.token) return &lease;
      why = Reason::kBadToken;
      return nullptr;
    }
    why = Reason::kLeaseEnded;
    return nullptr;
  }

  void Open(const wire::LeaseRef& ref, uint64_t offset, uint64_t length) {
    std::optional<Reason> why;
    ModelLease* lease = Find(ref, why);
    if (lease != nullptr && (offset > lease->block.nbytes || length > lease->block.nbytes - offset))
      why = Reason::kOutOfRange;
    const absl::StatusOr<LeaseBlock> range = book_.Open(ref, offset, length);
    ExpectStatus(range.status(), why);
    if (!range.ok()) return;
    RC_ASSERT(range->id == ref.id);
    RC_ASSERT(range->payload_offset == lease->block.payload_offset + offset);
    RC_ASSERT(range->nbytes == length);
    ++lease->readers_at_it;
  }

  void Unpin(ModelLease& lease) {
    book_.Unpin(lease.block.id);
    --lease.readers_at_it;
    model_.Settle(lease);
  }

  void Done(const wire::LeaseRef& ref) {
    std::optional<Reason> why;
    ModelLease* lease = Find(ref, why);
    ExpectStatus(book_.Done(ref), why);
    if (lease != nullptr) model_.CountDone(*lease);
  }

  void DoneByKey(int64_t key) {
    const absl::Status status = book_.DoneByKey(key);
    for (auto stone = model_.tombstones.begin(); stone != model_.tombstones.end(); ++stone) {
      if (stone->key != key) continue;
      ExpectStatus(status, Reason::kLeaseEnded);
      if (--stone->awaited == 0) model_.tombstones.erase(stone);
      return;
    }
    ModelLease* lease = model_.ReadableByKey(key);
    ExpectStatus(status, lease == nullptr ? std::optional(Reason::kLeaseEnded) : std::nullopt);
    if (lease != nullptr) model_.CountDone(*lease);
  }

  void Cancel(int64_t key) {
    ModelLease* lease = model_.ReadableByKey(key);
    ExpectStatus(book_.Cancel(key),
                 lease == nullptr ? std::optional(Reason::kLeaseEnded) : std::nullopt);
    if (lease != nullptr) model_.End(*lease, EndCause::kCancelled);
  }

  void Retired(ModelLease& lease) {
    book_.Retired(lease.block.id);
    lease.engines = false;
    model_.Settle(lease);
  }

  void Advance(Instant now) {
    book_.Advance(now);
    model_.Advance(now);
  }

  void TakeEffects() {
    const Effects effects = book_.TakeEffects();
    RC_ASSERT(effects.size() == model_.effects.size());
    for (size_t i = 0; i < effects.size(); ++i) {
      const Effect& got = effects[i];
      const Effect& expected = model_.effects[i];
      RC_ASSERT(got.kind == expected.kind);
      RC_ASSERT(got.id == expected.id);
      RC_ASSERT(got.generation == expected.generation);
      RC_ASSERT(got.key == expected.key);
      RC_ASSERT(got.payload_offset == expected.payload_offset);
      RC_ASSERT(got.nbytes == expected.nbytes);
      if (got.kind != Kind::kEnded) continue;
      RC_ASSERT(got.cause == expected.cause);
      RC_ASSERT(ended_generations_.insert(got.generation).second);
      ++ended_;
      for (ModelLease& lease : model_.leases) {
        if (lease.ref.generation == got.generation) lease.end_taken = true;
      }
    }
    model_.effects.clear();
  }

  void Compare() {
    const LeaseBookStats got = book_.stats();
    const LeaseBookStats expected = model_.Stats();
    RC_ASSERT(got.writing == expected.writing);
    RC_ASSERT(got.published == expected.published);
    RC_ASSERT(got.ended == expected.ended);
    RC_ASSERT(got.resting == expected.resting);
    RC_ASSERT(got.free_bytes == expected.free_bytes);
    RC_ASSERT(got.used_bytes == expected.used_bytes);
    RC_ASSERT(got.resting_bytes == expected.resting_bytes);
    RC_ASSERT(book_.NextDeadline() == model_.NextDeadline());
  }

  LeaseBook book_{Options()};
  Model model_;
  Instant clock_ = Instant(std::chrono::hours(1));
  std::vector<wire::LeaseRef> refs_;  // every one ever published
  std::set<uint64_t> generations_;
  std::set<uint64_t> ended_generations_;
  uint64_t published_ = 0;
  uint64_t ended_ = 0;
};

RC_GTEST_PROP(LeaseBookPropertyTest, AgreesWithItsModel, ()) {
  const std::vector<Step> steps = *Histories(kMaxSteps);
  History history;
  for (const Step& step : steps) history.Run(step);
  history.Finish();
}

// ---- Readers that notify by key alone ----

// Readers that each notify once, whenever it pleases them, and owners that reuse the key as soon as
// they can. Only the readers of a lease can be what releases it.
RC_GTEST_PROP(LeaseBookPropertyTest, LateNotificationsNeverReleaseANewerLease, ()) {
  // Short enough that no tombstone has to go for want of space.
  const std::vector<Step> steps = *Histories(2000);
  struct Reading {
    uint64_t lease_number;
    int64_t key;
  };
  struct Published {
    uint64_t id = 0;
    uint64_t generation = 0;
    uint32_t readers = 0;
    uint32_t notified = 0;
  };
  LeaseBook book({.arena_bytes = uint64_t{1} << 30});
  const Instant now(std::chrono::hours(1));
  std::vector<Published> leases;
  std::vector<Reading> outstanding;

  for (const Step& step : steps) {
    const auto key = static_cast<int64_t>(step.b % 3);
    switch (step.call) {
      case Call::kPublish: {
        const uint64_t id = book.Stage(step.a % 1000)->id;
        const uint32_t readers = 1 + step.a % 3;
        const absl::StatusOr<uint64_t> generation =
            book.Publish(id, {.key = key, .readers = readers, .one_sided = step.a % 2 == 0}, now);
        if (!generation.ok()) {
          book.Drop(id);
          break;
        }
        for (uint32_t i = 0; i < readers; ++i) outstanding.push_back({leases.size(), key});
        leases.push_back({.id = id, .generation = *generation, .readers = readers});
        break;
      }
      case Call::kCancel:
        (void)book.Cancel(key);
        break;
      case Call::kDone:
      case Call::kDoneByKey: {
        if (outstanding.empty()) break;
        const size_t which = step.which % outstanding.size();
        ++leases[outstanding[which].lease_number].notified;
        (void)book.DoneByKey(outstanding[which].key);
        outstanding[which] = outstanding.back();
        outstanding.pop_back();
        break;
      }
      default:
        break;
    }
    for (const Effect& effect : book.TakeEffects()) {
      if (effect.kind != Kind::kEnded) continue;
      for (const Published& lease : leases) {
        if (lease.generation != effect.generation) continue;
        RC_ASSERT(effect.cause != EndCause::kReleased || lease.notified == lease.readers);
      }
      book.Retired(effect.id);
      book.Drop(effect.id);
    }
  }
}

}  // namespace
}  // namespace tensorferry::arena
