// Notifications that may still come for leases that ended without them, by key.
//
//   Tombstones dead(std::chrono::seconds(210), 65536);
//   dead.Add(key, 2);               // two readers had not said that they were done
//   if (dead.Take(key)) ...         // a late one: it must not touch the key's next lease
//   dead.Advance(now);              // forgets what is older than the time to live
//
// A tombstone's age counts from the first Advance after its Add. When there are too many, the
// oldest go.
// Thread-safety: none; the caller locks.
#ifndef TENSORFERRY_ARENA_TOMBSTONES_H_
#define TENSORFERRY_ARENA_TOMBSTONES_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
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

  size_t size() const { return stones_.size(); }

 private:
  struct Stone {
    int64_t key;
    uint64_t number;  // of all tombstones, in their order
    uint32_t awaited;
    std::optional<Instant> expires;  // none until the next Advance
  };
  using ByAge = std::list<Stone>;
  void Drop(ByAge::iterator stone);

  const Duration ttl_;
  const size_t max_;
  uint64_t next_number_ = 0;
  ByAge stones_;  // oldest first
  absl::btree_map<std::pair<int64_t, uint64_t>, ByAge::iterator> by_key_;
};

}  // namespace tensorferry::arena

#endif  // TENSORFERRY_ARENA_TOMBSTONES_H_
