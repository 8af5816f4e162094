// What a gateway pays for a tensor, apart from writing it: staging, publishing, a descriptor.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <cstring>

#include "tensorferry/exporter/exporter.h"

namespace tensorferry {
namespace {

// One for all, since its memory takes a while to be touched. Null: there is none.
Exporter* TheExporter() {
  static const std::unique_ptr<Exporter> exporter = []() -> std::unique_ptr<Exporter> {
    auto made = Exporter::Create({.arena_bytes = uint64_t{64} << 20, .listen = "127.0.0.1:0"});
    if (!made.ok()) return nullptr;
    (*made)->WaitPrefaulted();
    return *std::move(made);
  }();
  return exporter.get();
}

long Faults() {
  rusage usage = {};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

void StageAndPublish(benchmark::State& state) {
  Exporter* const exporter = TheExporter();
  if (!exporter) return state.SkipWithError("no exporter");
  for (auto _ : state) {
    const Lease lease = exporter->Stage(static_cast<uint64_t>(state.range(0))).Publish({});
    if (!lease.exported().ok()) return state.SkipWithError("not exported");
  }
  // Every page of a tensor is written once, and none is touched for the first time.
  const long before = Faults();
  Staged staged = exporter->Stage(static_cast<uint64_t>(state.range(0)));
  std::memset(staged.bytes().data(), 1, staged.bytes().size());
  state.counters["page_faults"] = static_cast<double>(Faults() - before);
}
BENCHMARK(StageAndPublish)->Arg(64 << 10)->Arg(1 << 20)->Arg(9 << 20)->Arg(32 << 20);

void LeaseDescriptor(benchmark::State& state) {
  Exporter* const exporter = TheExporter();
  if (!exporter) return state.SkipWithError("no exporter");
  const Lease lease = exporter->Stage(1 << 20).Publish({});
  for (auto _ : state) benchmark::DoNotOptimize(lease.Descriptor());
}
BENCHMARK(LeaseDescriptor);

}  // namespace
}  // namespace tensorferry
