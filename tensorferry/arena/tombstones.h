// Notifications that may still come for leases that ended without them, by key.
//
//   Tombstones dead(std::chrono::seconds(210), 65536);
//   dead.Add(key, 2);               // two readers had not said that they were done
//   if (dead.Take(key)) ...         // a late one: it must not touch the key's next lease
//   dead.Advance(now);              // forgets what is older than the time to live
//
// A tombstone's age counts from the first Advance after its Add. When there are too many, the
// oldest go. Thread-safety: none; the caller locks.
#ifndef TENSORFERRY_ARENA_TOMBSTONES_H_
#define TENSORFERRY_ARENA_TOMBSTONES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "absl/container/btree_map.h"
#include "tensorferry/base/clock.h"

namespace tensorferry::arena {

class Tombstones {
 public:
  Tombstones(Duration ttl, size_t max) : ttl_(ttl), max_(max) {}

  // `awaited` is at least 1.
  void Add(int64_t key, uint32_t awaited);
  // One awaited notification of `key` has come, the oldest lease's first. False when none was
  // awaited.
  bool Take(int64_t key);
  void Advance(Instant now);

  size_t size() const { return awaited_.size(); }

 private:
  struct Stone {
    int64_t key;
    uint64_t number;
    Instant expires;  // kNever until the next Advance
  };
  void DropOldest();
  void DropTaken();

  const Duration ttl_;
  const size_t max_;
  uint64_t next_number_ = 0;
  std::deque<Stone> stones_;  // oldest first; may hold ones that awaited_ has no more
  size_t undated_ = 0;        // of stones_, at its end
  absl::btree_map<std::pair<int64_t, uint64_t>, uint32_t> awaited_;  // by key and number
};

}  // namespace tensorferry::arena

#endif  // TENSORFERRY_ARENA_TOMBSTONES_H_
