#include "tensorferry/arena/lease_book.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <string>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/wire/frame.h"

namespace tensorferry::arena {
namespace {

// In front of the payload: a whole granule, so that the payload is aligned and the stamp fits.
constexpr uint64_t kHeadBytes = kGranule;
static_assert(kHeadBytes >= wire::kFrameStampBytes);
constexpr uint64_t kExtraBytes = kHeadBytes + wire::kFrameStampBytes;

// How long the comparison takes must not tell how much of a guess was right.
bool SameToken(const wire::Token& a, const wire::Token& b) {
  const auto x = std::bit_cast<std::array<uint64_t, 2>>(a);
  const auto y = std::bit_cast<std::array<uint64_t, 2>>(b);
  uint64_t difference = (x[0] ^ y[0]) | (x[1] ^ y[1]);
  // Keeps the compiler from taking the two halves apart again.
  asm volatile("" : "+r"(difference));
  return difference == 0;
}

absl::Status Ended(const wire::LeaseRef& ref) {
  return MakeError(Reason::kLeaseEnded,
                   StrCat("lease ", ref.id, " of generation ", ref.generation, " is not readable"));
}

absl::Status EndedKey(int64_t key) {
  return MakeError(Reason::kLeaseEnded, StrCat("no readable lease has key ", key));
}

}  // namespace

LeaseBook::LeaseBook(const LeaseBookOptions& options)
    : options_(options),
      allocator_(options.arena_bytes),
      table_(options.max_leases),
      tombstones_(options.tombstone_ttl, options.max_tombstones),
      next_generation_(options.first_generation) {
  free_ids_.reserve(options.max_leases);
  for (uint32_t id = options.max_leases; id > 0; --id) free_ids_.push_back(id - 1);
}

absl::StatusOr<LeaseBlock> LeaseBook::Stage(uint64_t nbytes) {
  if (free_ids_.empty()) {
    return MakeError(Reason::kArenaFull,
                     StrCat("no place for another lease: all ", options_.max_leases,
                            " of the table are taken; raise max_leases"));
  }
  if (nbytes > UINT64_MAX - kExtraBytes) return ArenaFull(nbytes);
  const std::optional<uint64_t> offset = allocator_.Allocate(nbytes + kExtraBytes);
  if (!offset.has_value()) return ArenaFull(nbytes);

  const uint32_t id = free_ids_.back();
  free_ids_.pop_back();
  Entry& entry = table_[id];
  entry = Entry{.state = State::kWriting,
                .owner_pin = true,
                .payload_offset = *offset + kHeadBytes,
                .nbytes = nbytes};
  ++counts_.writing;
  return LeaseBlock{.id = id, .payload_offset = entry.payload_offset, .nbytes = nbytes};
}

absl::Status LeaseBook::ArenaFull(uint64_t nbytes) const {
  return MakeError(
      Reason::kArenaFull,
      StrCat("no room for ", nbytes, " bytes: of ", allocator_.capacity(), " are ",
             allocator_.capacity() - allocator_.used_bytes(), " free, in one piece at most ",
             allocator_.largest_free(), ", and ", counts_.resting_bytes,
             " at rest; raise arena_bytes or hold fewer leases"));
}

absl::StatusOr<uint64_t> LeaseBook::Publish(uint64_t id, const PublishTerms& terms, Instant now) {
  Observe(now);
  Entry* entry = Held(id);
  assert(entry == nullptr || entry->state == State::kWriting);
  if (entry == nullptr || entry->state != State::kWriting) {
    return MakeError(Reason::kLeaseEnded, StrCat("block ", id, " is not being written"));
  }
  if (terms.key.has_value()) {
    const auto [other, inserted] =
        readable_by_key_.try_emplace(*terms.key, static_cast<uint32_t>(id));
    if (!inserted) {
      return MakeError(Reason::kDuplicateKey, StrCat("key ", *terms.key, " belongs to lease ",
                                                     other->second, ", which is still readable"));
    }
  }
  if (next_generation_ == 0) ++next_generation_;
  entry->generation = next_generation_++;
  entry->state = State::kPublished;
  entry->engine_pin = true;
  entry->one_sided = entry->rests = terms.one_sided;
  entry->readers = terms.readers;
  entry->key = terms.key;
  entry->token = terms.token;
  SetDeadline(*entry, terms.expires);
  --counts_.writing;
  ++counts_.published;
  return entry->generation;
}

void LeaseBook::Drop(uint64_t id) {
  Entry* entry = Held(id);
  assert(entry == nullptr || entry->owner_pin);
  if (entry == nullptr || !entry->owner_pin) return;
  if (entry->state == State::kPublished) End(*entry, EndCause::kDropped);
  entry->owner_pin = false;
  Settle(*entry);
}

void LeaseBook::ReadersAreDone(uint64_t id) {
  Entry* entry = Held(id);
  const bool valid = entry != nullptr && entry->owner_pin && entry->state != State::kWriting;
  assert(valid);
  if (valid) entry->one_sided = entry->rests = false;
}

void LeaseBook::Detach(uint64_t id) {
  Entry* entry = Held(id);
  const bool valid = entry != nullptr && entry->owner_pin && entry->state != State::kWriting;
  assert(valid);
  if (!valid) return;
  entry->owner_pin = false;
  Settle(*entry);
}

absl::Status LeaseBook::GiveOneSided(const wire::LeaseRef& ref) {
  const absl::StatusOr<Entry*> found = Readable(ref);
  if (!found.ok()) return found.status();
  (*found)->one_sided = (*found)->rests = true;
  return absl::OkStatus();
}

absl::StatusOr<LeaseBlock> LeaseBook::Open(const wire::LeaseRef& ref, uint64_t offset,
                                           uint64_t length) {
  const absl::StatusOr<Entry*> found = ReadableRange(ref, offset, length);
  if (!found.ok()) return found.status();
  ++(*found)->reader_pins;
  return LeaseBlock{
      .id = ref.id, .payload_offset = (*found)->payload_offset + offset, .nbytes = length};
}

absl::StatusOr<LeaseBlock> LeaseBook::Locate(const wire::LeaseRef& ref, uint64_t offset,
                                             uint64_t length) {
  const absl::StatusOr<Entry*> found = ReadableRange(ref, offset, length);
  if (!found.ok()) return found.status();
  (*found)->rests = true;
  return LeaseBlock{
      .id = ref.id, .payload_offset = (*found)->payload_offset, .nbytes = (*found)->nbytes};
}

void LeaseBook::Unpin(uint64_t id) {
  Entry* entry = Held(id);
  assert(entry == nullptr || entry->reader_pins > 0);
  if (entry == nullptr || entry->reader_pins == 0) return;
  --entry->reader_pins;
  Settle(*entry);
}

absl::Status LeaseBook::Done(const wire::LeaseRef& ref) {
  const absl::StatusOr<Entry*> found = Readable(ref);
  if (!found.ok()) return found.status();
  CountDone(**found);
  return absl::OkStatus();
}

absl::Status LeaseBook::DoneByKey(int64_t key) {
  if (tombstones_.Take(key)) {
    return MakeError(Reason::kLeaseEnded,
                     StrCat("key ", key, ": the lease that was read has ended before"));
  }
  const auto found = readable_by_key_.find(key);
  if (found == readable_by_key_.end()) return EndedKey(key);
  CountDone(table_[found->second]);
  return absl::OkStatus();
}

absl::Status LeaseBook::Cancel(int64_t key) {
  const auto found = readable_by_key_.find(key);
  if (found == readable_by_key_.end()) return EndedKey(key);
  End(table_[found->second], EndCause::kCancelled);
  return absl::OkStatus();
}

void LeaseBook::Advance(Instant now) {
  Observe(now);
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_) {
    Entry& entry = table_[deadlines_.begin()->second];
    if (entry.state == State::kPublished) {
      End(entry, EndCause::kExpired);
    } else {
      Free(entry);
    }
  }
}

Instant LeaseBook::NextDeadline() const {
  if (!undated_rests_.empty()) return now_;
  return deadlines_.empty() ? kNever : deadlines_.begin()->first;
}

void LeaseBook::Retired(uint64_t id) {
  Entry* entry = Held(id);
  const bool valid = entry != nullptr && entry->state == State::kEnded && entry->engine_pin;
  assert(valid);
  if (!valid) return;
  entry->engine_pin = false;
  Settle(*entry);
}

Effects LeaseBook::TakeEffects() {
  Effects taken = std::move(effects_);
  effects_.clear();
  return taken;
}

LeaseBookStats LeaseBook::stats() const {
  LeaseBookStats stats = counts_;
  stats.free_bytes = allocator_.capacity() - allocator_.used_bytes();
  stats.used_bytes = allocator_.used_bytes() - counts_.resting_bytes;
  return stats;
}

LeaseBook::Entry* LeaseBook::Held(uint64_t id) {
  const bool valid =
      id < table_.size() && table_[id].state != State::kFree && table_[id].state != State::kResting;
  assert(valid);
  return valid ? &table_[id] : nullptr;
}

absl::StatusOr<LeaseBook::Entry*> LeaseBook::Readable(const wire::LeaseRef& ref) {
  if (ref.id >= table_.size()) return Ended(ref);
  Entry& entry = table_[ref.id];
  if (entry.state != State::kPublished || entry.generation != ref.generation) return Ended(ref);
  if (!SameToken(entry.token, ref.token)) {
    return MakeError(Reason::kBadToken, StrCat("lease ", ref.id, ": the token is not the lease's"));
  }
  return &entry;
}

absl::StatusOr<LeaseBook::Entry*> LeaseBook::ReadableRange(const wire::LeaseRef& ref,
                                                           uint64_t offset, uint64_t length) {
  const absl::StatusOr<Entry*> found = Readable(ref);
  if (!found.ok()) return found.status();
  const Entry& entry = **found;
  if (offset > entry.nbytes || length > entry.nbytes - offset) {
    return MakeError(Reason::kOutOfRange,
                     StrCat("lease ", ref.id, ": ", length, " bytes at offset ", offset,
                            " reach beyond its ", entry.nbytes, " bytes"));
  }
  return *found;
}

void LeaseBook::CountDone(Entry& entry) {
  if (entry.done < UINT32_MAX) ++entry.done;
  if (entry.done == entry.readers) End(entry, EndCause::kReleased);
}

void LeaseBook::End(Entry& entry, EndCause cause) {
  entry.state = State::kEnded;
  --counts_.published;
  ++counts_.ended;
  SetDeadline(entry, kNever);
  if (entry.key.has_value()) {
    readable_by_key_.erase(*entry.key);
    uint32_t awaited = entry.readers > entry.done ? entry.readers - entry.done : 0;
    if (entry.readers == 0 && entry.one_sided && entry.done == 0) awaited = 1;
    if (awaited > 0) tombstones_.Add(*entry.key, awaited);
  }
  Note(Effect::Kind::kEnded, entry, cause);
}

void LeaseBook::Settle(Entry& entry) {
  if (entry.owner_pin || entry.engine_pin || entry.reader_pins > 0) return;
  const bool read_by_all = entry.readers > 0 && entry.done >= entry.readers;
  if (!entry.rests || read_by_all) return Free(entry);
  entry.state = State::kResting;
  --counts_.ended;
  ++counts_.resting;
  counts_.resting_bytes += RoundUpToGranule(entry.nbytes + kExtraBytes);
  undated_rests_.push_back(static_cast<uint32_t>(IdOf(entry)));
  Note(Effect::Kind::kPoison, entry);
}

void LeaseBook::Free(Entry& entry) {
  SetDeadline(entry, kNever);
  switch (entry.state) {
    case State::kWriting:
      --counts_.writing;
      break;
    case State::kEnded:
      --counts_.ended;
      break;
    case State::kResting:
      --counts_.resting;
      counts_.resting_bytes -= RoundUpToGranule(entry.nbytes + kExtraBytes);
      break;
    case State::kFree:
    case State::kPublished:
      assert(false);
      return;
  }
  Note(Effect::Kind::kFreed, entry);
  entry.state = State::kFree;
  allocator_.Free(entry.payload_offset - kHeadBytes);
  free_ids_.push_back(static_cast<uint32_t>(IdOf(entry)));
}

void LeaseBook::SetDeadline(Entry& entry, Instant deadline) {
  if (entry.deadline == deadline) return;
  const auto id = static_cast<uint32_t>(IdOf(entry));
  if (entry.deadline != kNever) deadlines_.erase({entry.deadline, id});
  if (deadline != kNever) deadlines_.emplace(deadline, id);
  entry.deadline = deadline;
}

void LeaseBook::Observe(Instant now) {
  now_ = std::max(now_, now);
  for (const uint32_t id : undated_rests_) {
    SetDeadline(table_[id], SaturatingAdd(now_, options_.rest));
  }
  undated_rests_.clear();
  tombstones_.Advance(now_);
}

void LeaseBook::Note(Effect::Kind kind, const Entry& entry, EndCause cause) {
  effects_.push_back(Effect{.kind = kind,
                            .id = IdOf(entry),
                            .generation = entry.generation,
                            .cause = cause,
                            .key = entry.key,
                            .payload_offset = entry.payload_offset,
                            .nbytes = entry.nbytes});
}

}  // namespace tensorferry::arena
