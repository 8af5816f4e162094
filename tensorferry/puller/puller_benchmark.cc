// What a worker pays for a tensor of its own host: the claim of a view, and the hand-off to and
// from the puller's threads when it does not wait itself. Both ends are in this process.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <future>

#include "tensorferry/base/text.h"
#include "tensorferry/exporter/exporter.h"
#include "tensorferry/puller/puller.h"

namespace tensorferry {
namespace {

struct Ends {
  Ends() {
    auto created = Exporter::Create(
        {.arena_bytes = uint64_t{64} << 20,
         .local_socket = StrCat("/tmp/tensorferry-benchmark-", ::getpid(), ".sock")});
    auto pulling = Puller::Create({.landing_bytes = 0, .tcp = false});
    if (!created.ok() || !pulling.ok()) return;
    exporter = *std::move(created);
    puller = *std::move(pulling);
    lease = exporter->Stage(1 << 20).Publish({});
    const auto descriptor = lease.Descriptor();
    if (descriptor.ok()) {
      handle = {.transport = "tensorferry", .descriptor = *descriptor, .nbytes = 1 << 20};
    }
  }
  std::unique_ptr<Exporter> exporter;
  std::unique_ptr<Puller> puller;
  Lease lease;
  Handle handle;
};

void ClaimAView(benchmark::State& state) {
  const Ends ends;
  if (!ends.puller) return state.SkipWithError("no two ends");
  for (auto _ : state) {
    const auto view = ends.puller->Pull(ends.handle, {});
    if (!view.ok()) return state.SkipWithError("not pulled");
  }
}
BENCHMARK(ClaimAView);

void HandOff(benchmark::State& state) {
  const Ends ends;
  if (!ends.puller) return state.SkipWithError("no two ends");
  for (auto _ : state) {
    std::promise<bool> pulled;
    ends.puller->PullAsync(ends.handle, {},
                           [&](const absl::StatusOr<View>& view) { pulled.set_value(view.ok()); });
    if (!pulled.get_future().get()) return state.SkipWithError("not pulled");
  }
}
BENCHMARK(HandOff)->UseRealTime();

}  // namespace
}  // namespace tensorferry
