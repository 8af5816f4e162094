// The life of leases, as a pure state machine: who may read which bytes of the arena until when,
// and when those bytes may be handed out again.
//
//   LeaseBook book({.arena_bytes = 1 << 30, .first_generation = random});
//   auto block = book.Stage(nbytes);                                  // writing
//   book.Publish(block->id, {.key = room, .readers = 1, .token = token, .expires = t}, now);
//   auto extent = book.Open(ref, 0, nbytes);                          // a reader pins it
//   ...                                                               // book.Unpin(ref.id)
//   book.Done(ref);                                                   // the last reader ends it
//   for (const Effect& e : book.TakeEffects()) ...                    // what the owner must do now
//
//   free → writing → published → ended → (resting) → free
//
// Two things are kept apart. *Readable*: from Publish until the last reader's Done, the owner's
// Drop, Cancel or expiry; each sets off one kEnded effect. *Memory*: held by pins: one of the owner
// (Stage … Drop or Detach), one of the engines (Publish … Retired), and one per reader that is at
// it (Open … Unpin). Bytes are free again when the last pin goes, or, if the lease was given to SMG's
// readers (`one_sided`) or a reader was told where it lies (Locate), and it ended before all its
// readers were done, `rest` later, with a kPoison effect at the moment it begins to rest. Such leases
// with `readers == 0` always rest: nobody counted.
//
// Keys: at most one readable lease a key. A lease with a key that ends before its readers notified
// leaves a tombstone for `tombstone_ttl`, worth as many notifications as were missing (one for a
// one-sided lease with `readers == 0` that heard none): the next DoneByKey of that key hits the
// tombstone, never a newer lease. Generations start at `first_generation` (make it random) and
// never repeat; 0 is skipped.
//
// Time only enters through `now`, and never runs backwards. What begins in a call without it (a
// rest, a tombstone) is dated by the next Publish or Advance; until a new rest is dated,
// NextDeadline() is the latest time known, so that whoever sleeps until then calls Advance at once.
// Wrong calls by the owner (Retired twice, Publish of what is not being written) are programming
// errors: they fail an assert in debug builds and change nothing otherwise. What peers can cause is
// a status.
// Thread-safety: none; the caller locks.
#ifndef TENSORFERRY_ARENA_LEASE_BOOK_H_
#define TENSORFERRY_ARENA_LEASE_BOOK_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "tensorferry/arena/allocator.h"
#include "tensorferry/arena/tombstones.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/wire/descriptor.h"

namespace tensorferry::arena {

struct LeaseBookOptions {
  uint64_t arena_bytes = 0;
  uint32_t max_leases = 32768;  // size of the table; an id is an index into it
  Duration rest = std::chrono::seconds(90);
  Duration tombstone_ttl = std::chrono::seconds(210);
  uint32_t max_tombstones = 65536;  // beyond it the oldest are forgotten
  uint64_t first_generation = 1;
};

// Where a lease's bytes are, as offsets from the start of the arena. The payload is 64-byte
// aligned; the 8 bytes before and the 8 bytes after it belong to the lease too (the stamps of the
// frame).
struct LeaseBlock {
  uint64_t id = 0;
  uint64_t payload_offset = 0;
  uint64_t nbytes = 0;
};

struct PublishTerms {
  std::optional<int64_t> key = std::nullopt;
  uint32_t readers = 0;    // notifications that end it; 0: only the owner, Cancel or expiry do
  bool one_sided = false;  // as after GiveOneSided
  wire::Token token = {};
  Instant expires = kNever;
};

enum class EndCause { kReleased, kDropped, kCancelled, kExpired };

struct Effect {
  enum class Kind {
    kEnded,   // not readable any more: tell the engines, then call Retired(id)
    kPoison,  // overwrite both stamps of the frame, now
    kFreed,   // the bytes are free again
  };
  Kind kind;
  uint64_t id = 0;
  uint64_t generation = 0;              // 0 for a block that was never published
  EndCause cause = EndCause::kDropped;  // of kEnded
  std::optional<int64_t> key = std::nullopt;
  uint64_t payload_offset = 0;
  uint64_t nbytes = 0;
};

// One call mostly has one or two effects: they need no heap.
using Effects = absl::InlinedVector<Effect, 2>;

struct LeaseBookStats {
  uint64_t writing = 0, published = 0, ended = 0, resting = 0;  // leases
  uint64_t free_bytes = 0, used_bytes = 0, resting_bytes = 0;   // together the arena
};

class LeaseBook {
 public:
  explicit LeaseBook(const LeaseBookOptions& options);

  // kArenaFull when no free piece is large enough or the table is full (says which, and the sizes).
  absl::StatusOr<LeaseBlock> Stage(uint64_t nbytes);
  // Returns the generation. kDuplicateKey leaves the block as it was, writing.
  absl::StatusOr<uint64_t> Publish(uint64_t id, const PublishTerms& terms, Instant now);

  // The owner's handle is gone: ends a published lease, gives back a block that was never
  // published.
  void Drop(uint64_t id);
  // One-sided readers are told of a readable lease from now on. kLeaseEnded when it is none.
  absl::Status GiveOneSided(const wire::LeaseRef& ref);
  // The owner knows that no one-sided reader is at it: its memory need not rest. Not of a block that
  // was never published.
  void ReadersAreDone(uint64_t id);
  // The owner lets go, readers or expiry end the lease.
  void Detach(uint64_t id);

  // A reader begins: pins the lease and returns where [offset, offset + length) of its payload is.
  // kLeaseEnded (unknown, ended or another generation), kBadToken (compared in constant time),
  // kOutOfRange.
  absl::StatusOr<LeaseBlock> Open(const wire::LeaseRef& ref, uint64_t offset, uint64_t length);
  void Unpin(uint64_t id);
  // The same for a reader that fetches by itself: nothing is pinned, but the memory rests. Returns
  // where the whole payload is.
  absl::StatusOr<LeaseBlock> Locate(const wire::LeaseRef& ref, uint64_t offset, uint64_t length);

  // One reader has all its bytes. kLeaseEnded or kBadToken when it is not such a reader.
  absl::Status Done(const wire::LeaseRef& ref);
  // The same by key alone, as SMG's workers say it. kLeaseEnded when it hit a tombstone or nothing.
  absl::Status DoneByKey(int64_t key);
  // kLeaseEnded when no readable lease has the key.
  absl::Status Cancel(int64_t key);
  // Ends what is past its time, frees what has rested. Call at NextDeadline() or later.
  void Advance(Instant now);
  Instant NextDeadline() const;

  // The engines have let go of a lease whose kEnded was taken.
  void Retired(uint64_t id);

  // What happened since the last call, in order.
  Effects TakeEffects();

  LeaseBookStats stats() const;

 private:
  enum class State : uint8_t { kFree, kWriting, kPublished, kEnded, kResting };
  struct Entry {
    State state = State::kFree;
    bool owner_pin = false;
    bool engine_pin = false;
    bool one_sided = false;  // SMG's readers: they notify by key
    bool rests = false;
    uint32_t reader_pins = 0;
    uint32_t readers = 0;
    uint32_t done = 0;  // notifications that came while it was readable
    uint64_t payload_offset = 0;
    uint64_t nbytes = 0;
    uint64_t generation = 0;
    std::optional<int64_t> key = std::nullopt;
    wire::Token token = {};
    Instant deadline = kNever;  // of expiry or of the rest; in deadlines_ unless kNever
  };

  // The entry of an id that the owner holds; null (and a failed assert) when it cannot be one.
  Entry* Held(uint64_t id);
  // The readable lease that `ref` names and has the token of.
  absl::StatusOr<Entry*> Readable(const wire::LeaseRef& ref);
  absl::StatusOr<Entry*> ReadableRange(const wire::LeaseRef& ref, uint64_t offset, uint64_t length);
  absl::Status ArenaFull(uint64_t nbytes) const;

  void CountDone(Entry& entry);
  void End(Entry& entry, EndCause cause);
  // After a pin went: frees the bytes, or lets them rest, if it was the last.
  void Settle(Entry& entry);
  void Free(Entry& entry);
  void SetDeadline(Entry& entry, Instant deadline);
  // Takes notice of the time: dates what has begun since it was last told.
  void Observe(Instant now);
  void Note(Effect::Kind kind, const Entry& entry, EndCause cause = EndCause::kDropped);
  uint64_t IdOf(const Entry& entry) const { return static_cast<uint64_t>(&entry - table_.data()); }

  const LeaseBookOptions options_;
  Allocator allocator_;
  std::vector<Entry> table_;        // by id
  std::vector<uint32_t> free_ids_;  // the last one is used next: it is warm in the cache
  absl::flat_hash_map<int64_t, uint32_t> readable_by_key_;
  absl::btree_set<std::pair<Instant, uint32_t>> deadlines_;
  std::vector<uint32_t> undated_rests_;
  Tombstones tombstones_;
  uint64_t next_generation_;
  Instant now_ = Instant::min();
  Effects effects_;
  LeaseBookStats counts_;  // leases and resting_bytes; the other sizes are the allocator's
};

}  // namespace tensorferry::arena

#endif  // TENSORFERRY_ARENA_LEASE_BOOK_H_
