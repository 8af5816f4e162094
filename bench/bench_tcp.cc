#include <functional>

#include "bench/bare_sockets.h"
#include "bench/bench.h"
#include "tensorferry/base/text.h"

namespace tensorferry::bench {
namespace {

struct Case {
  int bare_connections;
  int pulls;    // a round
  double goal;  // of the ratio; 0: none
};
// One for each of kSizes.
constexpr Case kCases[] = {{1, 400, 0.8}, {1, 150, 0.9}, {2, 30, 0.95}, {2, 10, 0}};

using Pull = std::function<void(uint64_t variant, std::span<std::byte> into)>;

std::vector<double> Round(size_t size_index, const Pull& pull) {
  static std::vector<std::byte> landing(kSizes[std::size(kSizes) - 1]);
  const std::span<std::byte> into = std::span(landing).first(kSizes[size_index]);
  std::vector<double> times;
  for (int i = 0; i < kCases[size_index].pulls; ++i) {
    const uint64_t variant = static_cast<uint64_t>(i) % kVariants;
    times.push_back(TimedPull(size_index, variant, into, [&] { pull(variant, into); }));
  }
  return times;
}

}  // namespace

void BenchTcp(const Options& options) {
  const Gateway bare_gateway(options, "bare");
  const Gateway gateway(options, "tensorferry");
  auto puller = Puller::Create(
      {.allow = *AllowList::Parse({"127.0.0.0/8", "10.77.0.0/24"}), .landing_bytes = 0});
  if (!puller.ok()) Fail(StdView(puller.status().message()));

  for (size_t i = 0; i < std::size(kSizes); ++i) {
    BareSocketClient client(bare_gateway.address(), kCases[i].bare_connections);
    const Handle handles[] = {gateway.TcpHandle(i, 0), gateway.TcpHandle(i, 1)};
    const Pull bare = [&](uint64_t variant, std::span<std::byte> into) {
      client.Pull(PayloadOffset(i, variant), into);
    };
    const Pull ours = [&](uint64_t variant, std::span<std::byte> into) {
      const auto done = (*puller)->PullInto(handles[variant], into, {});
      if (!done.ok()) Fail(StdView(done.status().message()));
      if (done->transport != "tcp") Fail(StrCat("pulled over ", done->transport));
    };
    std::vector<double> bare_times, our_times, ratios;
    for (int round = 0; round <= options.rounds; ++round) {
      // In turns, and in turns who begins.
      std::vector<double> b, o;
      if (round % 2 == 0) b = Round(i, bare);
      o = Round(i, ours);
      if (round % 2 != 0) b = Round(i, bare);
      if (round == 0) continue;  // warms up
      ratios.push_back(Median(b) / Median(o));
      bare_times.insert(bare_times.end(), b.begin(), b.end());
      our_times.insert(our_times.end(), o.begin(), o.end());
    }
    Report(options, {.what = "tcp, speed of bare sockets",
                     .nbytes = kSizes[i],
                     .value = Median(ratios),
                     .unit = "x",
                     .at_least = kCases[i].goal,
                     .details = {{"bare_p50_us", Median(bare_times)},
                                 {"tensorferry_p50_us", Median(our_times)}}});
  }
}

}  // namespace tensorferry::bench
