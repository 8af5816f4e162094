#include <sys/resource.h>

#include <cstring>
#include <optional>

#include "bench/bench.h"
#include "tensorferry/base/text.h"
#include "tensorferry/exporter/exporter.h"

namespace tensorferry::bench {
namespace {

constexpr double kViewGoalUs = 15;
constexpr double kCopyGoal = 1.2;  // of memcpy's time
constexpr double kStageGoalUs = 3;
constexpr int kViews = 2000;
constexpr int kCopies = 60;
constexpr int kStages = 2000;
constexpr size_t kCopied = 2;  // 9 MiB

long PageFaults() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

}  // namespace

void BenchLocal(const Options& options) {
  const Gateway gateway(options, "tensorferry");
  auto puller = Puller::Create({.landing_bytes = 0, .tcp = false});
  if (!puller.ok()) Fail(StdView(puller.status().message()));

  for (size_t i = 0; i < std::size(kSizes); ++i) {
    std::vector<double> times;
    for (int n = 0; n < kViews; ++n) {
      const uint64_t variant = static_cast<uint64_t>(n) % kVariants;
      const Handle handle = gateway.LocalHandle(i, variant);
      std::optional<View> view;
      times.push_back(Timed([&] {
        auto pulled = (*puller)->Pull(handle, {});
        if (!pulled.ok()) Fail(StdView(pulled.status().message()));
        view = *std::move(pulled);
      }));
      if (n < 2 && std::memcmp(view->bytes().data(), Payload(i, variant).data(), kSizes[i]) != 0) {
        Fail("wrong bytes in a view");
      }
    }
    Report(options, {.what = "local, view",
                     .nbytes = kSizes[i],
                     .value = Median(times),
                     .unit = "us",
                     .at_most = kViewGoalUs});
  }

  std::vector<std::byte> into(kSizes[kCopied]);
  std::vector<double> ratios, pulls, copies;
  for (int n = 0; n < kCopies; ++n) {
    const uint64_t variant = static_cast<uint64_t>(n) % kVariants;
    const Handle handle = gateway.LocalHandle(kCopied, variant);
    pulls.push_back(TimedPull(kCopied, variant, into, [&] {
      const auto done = (*puller)->PullInto(handle, into, {});
      if (!done.ok()) Fail(StdView(done.status().message()));
    }));
    // From the same memory, so that caches are as warm or cold for both.
    const auto view = (*puller)->Pull(handle, {});
    if (!view.ok()) Fail(StdView(view.status().message()));
    copies.push_back(TimedPull(kCopied, variant, into, [&] {
      std::memcpy(into.data(), view->bytes().data(), into.size());
    }));
    ratios.push_back(pulls.back() / copies.back());
  }
  Report(options,
         {.what = "local, copy, time of memcpy",
          .nbytes = kSizes[kCopied],
          .value = Median(ratios),
          .unit = "x",
          .at_most = kCopyGoal,
          .details = {{"memcpy_p50_us", Median(copies)}, {"tensorferry_p50_us", Median(pulls)}}});
}

void BenchStage(const Options& options) {
  auto exporter = Exporter::Create({.arena_bytes = uint64_t{256} << 20, .listen = "127.0.0.1:0"});
  if (!exporter.ok()) Fail(StdView(exporter.status().message()));
  (*exporter)->WaitPrefaulted();
  for (const uint64_t size : kSizes) {
    std::vector<double> times;
    long faults = 0;
    for (int n = 0; n < kStages; ++n) {
      Staged staged;
      Lease lease;
      const double stage = Timed([&] { staged = (*exporter)->Stage(size); });
      if (n % 200 == 0) {
        const long before = PageFaults();
        std::memset(staged.bytes().data(), n, size);
        faults += PageFaults() - before;
      }
      times.push_back(stage + Timed([&] { lease = std::move(staged).Publish({}); }));
      if (!lease.exported().ok()) Fail(StdView(lease.exported().message()));
    }
    Report(options, {.what = "stage and publish",
                     .nbytes = size,
                     .value = Median(times),
                     .unit = "us",
                     .at_most = kStageGoalUs,
                     .details = {{"page_faults", static_cast<double>(faults)}}});
  }
}

}  // namespace tensorferry::bench
