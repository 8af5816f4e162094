// What the arena's bookkeeping costs, without its memory: no page of it is touched here.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "tensorferry/arena/allocator.h"
#include "tensorferry/arena/lease_book.h"

namespace tensorferry::arena {
namespace {

constexpr Instant kNow = Instant(std::chrono::hours(1));

// 64 KiB to 100 MiB, as often per octave.
std::vector<uint64_t> Sizes() {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> octave(16, 26.64);
  std::vector<uint64_t> sizes(4096);
  for (uint64_t& size : sizes) size = static_cast<uint64_t>(std::exp2(octave(random)));
  return sizes;
}

// One piece goes, another comes, among range(0) live ones.
void AllocateAndFree(benchmark::State& state) {
  const std::vector<uint64_t> sizes = Sizes();
  const auto live = static_cast<size_t>(state.range(0));
  Allocator allocator(uint64_t{1} << 50);
  std::vector<uint64_t> pieces;
  for (size_t i = 0; i < live; ++i) {
    pieces.push_back(*allocator.Allocate(sizes[i % sizes.size()]));
  }
  std::mt19937 random(2);
  // Fragmented as after a long run.
  for (size_t i = 0; i < 20 * live; ++i) {
    uint64_t& piece = pieces[random() % live];
    allocator.Free(piece);
    piece = *allocator.Allocate(sizes[random() % sizes.size()]);
  }
  for (auto _ : state) {
    uint64_t& piece = pieces[random() % live];
    allocator.Free(piece);
    piece = *allocator.Allocate(sizes[random() % sizes.size()]);
  }
}
BENCHMARK(AllocateAndFree)->Arg(16)->Arg(256)->Arg(4096)->Arg(16384);

// How much of an arena of 2 GiB is in use when a tensor first does not fit, after a long run in
// which it was kept full to range(0) percent: what fragmentation costs.
void Fragmentation(benchmark::State& state) {
  const std::vector<uint64_t> sizes = Sizes();
  constexpr uint64_t kArena = uint64_t{2} << 30;
  const uint64_t full = kArena / 100 * static_cast<uint64_t>(state.range(0));
  Allocator allocator(kArena);
  std::mt19937 random(3);
  std::vector<uint64_t> pieces;
  uint64_t refused = 0, asked = 0;
  for (auto _ : state) {
    while (allocator.used_bytes() > full && !pieces.empty()) {
      std::swap(pieces[random() % pieces.size()], pieces.back());
      allocator.Free(pieces.back());
      pieces.pop_back();
    }
    const auto piece = allocator.Allocate(sizes[random() % sizes.size()]);
    ++asked;
    if (piece) pieces.push_back(*piece);
    refused += piece ? 0 : 1;
  }
  state.counters["refused_percent"] =
      100 * static_cast<double>(refused) / static_cast<double>(asked);
  state.counters["largest_free_percent"] = 100 * static_cast<double>(allocator.largest_free()) /
                                           static_cast<double>(kArena - allocator.used_bytes());
}
BENCHMARK(Fragmentation)->Arg(50)->Arg(75)->Arg(90);

// A lease's whole life with one reader, among range(0) others.
void LifeOfALease(benchmark::State& state) {
  const std::vector<uint64_t> sizes = Sizes();
  const auto live = static_cast<size_t>(state.range(0));
  LeaseBook book({.arena_bytes = uint64_t{1} << 50});
  std::mt19937 random(2);
  int64_t key = 0;
  const auto publish = [&] {
    const LeaseBlock block = *book.Stage(sizes[random() % sizes.size()]);
    const PublishTerms terms = {.key = ++key,
                                .expires = kNow + std::chrono::seconds(random() % 210)};
    return wire::LeaseRef{.id = block.id, .generation = *book.Publish(block.id, terms, kNow)};
  };
  std::vector<wire::LeaseRef> leases;
  for (size_t i = 0; i < live; ++i) leases.push_back(publish());
  for (auto _ : state) {
    wire::LeaseRef& lease = leases[random() % live];
    benchmark::DoNotOptimize(book.Open(lease, 0, 1));
    book.Unpin(lease.id);
    book.Drop(lease.id);
    for (const Effect& effect : book.TakeEffects()) book.Retired(effect.id);
    benchmark::DoNotOptimize(book.TakeEffects());
    lease = publish();
  }
}
BENCHMARK(LifeOfALease)->Arg(16)->Arg(256)->Arg(4096)->Arg(16384);

void TakeNoEffects(benchmark::State& state) {
  LeaseBook book({.arena_bytes = 1 << 20});
  for (auto _ : state) benchmark::DoNotOptimize(book.TakeEffects());
}
BENCHMARK(TakeNoEffects);

}  // namespace
}  // namespace tensorferry::arena
