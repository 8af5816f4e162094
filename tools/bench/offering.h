// The gateway's end of a benchmark: tensors written where an engine wants them, and offered.
//
//   auto offering = Offering::Create(opening, "127.0.0.1");
//   auto shelf = (*offering)->NewShelf();                  // one for each stream
//   auto spans = shelf->Stage(nbytes, 2);                  // write into them
//   auto offered = shelf->Offer(key);                      // timed: descriptors, or whole calls
//   shelf->Clear();                                        // nobody reads them any more
//
// Thread-safety: NewShelf and the figures from any thread, a shelf is used by one.
// Ownership: the offering outlives its shelves.
#ifndef TENSORFERRY_TOOLS_BENCH_OFFERING_H_
#define TENSORFERRY_TOOLS_BENCH_OFFERING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/base/clock.h"
#include "tools/bench/talk.h"

namespace tensorferry::tools::bench {

struct Offered {
  std::string descriptor = {};
  // Of a whole call, which is over: how long it took, and what carried the bytes.
  std::optional<Duration> call = {};
  std::string transport = {};
};

class Shelf {
 public:
  virtual ~Shelf() = default;
  virtual void Clear() = 0;
  // kArenaFull.
  virtual absl::StatusOr<std::vector<std::span<std::byte>>> Stage(uint64_t nbytes,
                                                                  uint64_t count) = 0;
  // One for each, in order; the key of the first is `key`, that of the next `key` + 1, …
  virtual absl::StatusOr<std::vector<Offered>> Offer(int64_t key) = 0;
};

class Offering {
 public:
  // `host`: the address that workers reach this host at. kLaneOff for an engine that cannot be had
  // here; the engine's own errors.
  static absl::StatusOr<std::unique_ptr<Offering>> Create(const Opening& opening,
                                                          const std::string& host);
  virtual ~Offering() = default;
  virtual absl::StatusOr<std::unique_ptr<Shelf>> NewShelf() = 0;
  // Of the arena, for each tensor that is on offer; 0 where there is no arena.
  virtual double ArenaBytesPerTensor() const { return 0; }
};

}  // namespace tensorferry::tools::bench

#endif  // TENSORFERRY_TOOLS_BENCH_OFFERING_H_
