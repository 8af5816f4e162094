#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

#include "tensorferry/arena/allocator.h"

namespace tensorferry::arena {
namespace {

struct Step {
  bool allocate;
  uint64_t bytes;  // to allocate
  uint32_t which;  // of the taken pieces, to free
};

std::ostream& operator<<(std::ostream& os, const Step& step) {
  if (step.allocate) return os << "Allocate(" << step.bytes << ")";
  return os << "Free(#" << step.which << ")";
}

rc::Gen<Step> AnyStep() {
  return rc::gen::construct<Step>(
      rc::gen::arbitrary<bool>(),
      rc::gen::oneOf(rc::gen::inRange<uint64_t>(0, 3 * kGranule),
                     rc::gen::inRange<uint64_t>(0, 40 * kGranule),
                     rc::gen::inRange<uint64_t>(0, 400 * kGranule),
                     rc::gen::inRange<uint64_t>(UINT64_MAX - 2 * kGranule, UINT64_MAX)),
      rc::gen::inRange<uint32_t>(0, 1000));
}

// One flag per granule: as simple as it gets.
class Model {
 public:
  explicit Model(uint64_t granules) : taken_(granules) {}

  // The lowest of the shortest runs of free granules that are long enough.
  std::optional<uint64_t> BestFit(uint64_t granules) const {
    std::optional<uint64_t> best;
    uint64_t best_run = UINT64_MAX;
    for (const auto& [at, run] : FreeRuns()) {
      if (run >= granules && run < best_run) {
        best = at;
        best_run = run;
      }
    }
    return best;
  }
  uint64_t LargestRun() const {
    uint64_t largest = 0;
    for (const auto& [at, run] : FreeRuns()) largest = std::max(largest, run);
    return largest;
  }
  void Set(uint64_t at, uint64_t granules, bool taken) {
    for (uint64_t i = at; i < at + granules; ++i) {
      RC_ASSERT(taken_[i] != taken);
      taken_[i] = taken;
    }
    used_ = taken ? used_ + granules : used_ - granules;
  }
  uint64_t used() const { return used_; }

 private:
  std::vector<std::pair<uint64_t, uint64_t>> FreeRuns() const {
    std::vector<std::pair<uint64_t, uint64_t>> runs;
    for (uint64_t i = 0; i < taken_.size(); ++i) {
      if (taken_[i]) continue;
      if (i == 0 || taken_[i - 1]) runs.emplace_back(i, 0);
      ++runs.back().second;
    }
    return runs;
  }

  std::vector<bool> taken_;
  uint64_t used_ = 0;
};

RC_GTEST_PROP(AllocatorPropertyTest, IsBestFitAndCoalesces, ()) {
  const auto granules = *rc::gen::inRange<uint64_t>(1, 600);
  const auto steps = *rc::gen::resize(1000, rc::gen::container<std::vector<Step>>(AnyStep()));
  Allocator allocator(granules * kGranule);
  Model model(granules);
  std::vector<std::pair<uint64_t, uint64_t>> taken;  // in granules: offset, size

  const auto free = [&](size_t which) {
    const auto [at, size] = taken[which];
    taken[which] = taken.back();
    taken.pop_back();
    model.Set(at, size, false);
    allocator.Free(at * kGranule);
  };
  for (const Step& step : steps) {
    if (step.allocate) {
      const uint64_t size =
          std::max<uint64_t>(1, step.bytes / kGranule + (step.bytes % kGranule > 0 ? 1 : 0));
      const std::optional<uint64_t> expected = model.BestFit(size);
      const std::optional<uint64_t> offset = allocator.Allocate(step.bytes);
      RC_ASSERT(offset.has_value() == expected.has_value());
      if (!offset.has_value()) continue;
      RC_ASSERT(*offset == *expected * kGranule);
      model.Set(*expected, size, true);
      taken.emplace_back(*expected, size);
    } else if (!taken.empty()) {
      free(step.which % taken.size());
    }
    RC_ASSERT(allocator.used_bytes() == model.used() * kGranule);
    RC_ASSERT(allocator.largest_free() == model.LargestRun() * kGranule);
  }
  while (!taken.empty()) free(taken.size() - 1);
  RC_ASSERT(allocator.largest_free() == allocator.capacity());
}

}  // namespace
}  // namespace tensorferry::arena
