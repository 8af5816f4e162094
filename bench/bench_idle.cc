#include <algorithm>
#include <ctime>
#include <thread>

#include "bench/bench.h"
#include "tensorferry/base/text.h"

namespace tensorferry::bench {
namespace {

constexpr double kGoalPercent = 0.5;  // of a core

double OwnCpuSeconds() {
  timespec t = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

}  // namespace

void BenchIdle(const Options& options) {
  const Gateway gateway(options, "tensorferry");
  auto puller = Puller::Create({.allow = *AllowList::Parse({"127.0.0.0/8", "10.77.0.0/24"}),
                                .landing_bytes = uint64_t{16} << 20});
  if (!puller.ok()) Fail(StdView(puller.status().message()));
  // Connected, and with something done: not merely never used.
  std::vector<Handle> handles = {gateway.TcpHandle(1, 0)};
  if (!options.netns) handles.push_back(gateway.LocalHandle(1, 0));
  for (const auto& view : (*puller)->PullAll(handles, {})) {
    if (!view.ok()) Fail(StdView(view.status().message()));
  }
  std::this_thread::sleep_for(std::chrono::seconds(1));  // memory is touched in the background

  const double gateway_before = gateway.CpuSeconds();
  const double worker_before = OwnCpuSeconds();
  const BenchClock::time_point start = BenchClock::now();
  std::this_thread::sleep_for(std::chrono::seconds(3));
  const double seconds = std::chrono::duration<double>(BenchClock::now() - start).count();
  const double in_gateway = 100 * (gateway.CpuSeconds() - gateway_before) / seconds;
  const double in_worker = 100 * (OwnCpuSeconds() - worker_before) / seconds;
  Report(options, {.what = "idle, of a core",
                   .value = std::max(in_gateway, in_worker),
                   .unit = "percent",
                   .at_most = kGoalPercent,
                   .details = {{"gateway_percent", in_gateway}, {"worker_percent", in_worker}}});
}

}  // namespace tensorferry::bench
