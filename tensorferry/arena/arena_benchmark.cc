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
