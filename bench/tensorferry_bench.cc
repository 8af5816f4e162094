// Measures what Tensorferry promises about speed, each figure between two processes unless it is
// about one.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>

#include "bench/bench.h"

namespace {

constexpr char kUsage[] =
    "usage: tensorferry_bench [tcp] [local] [stage] [idle] [--netns] [--rounds N] [--json]\n"
    "  tcp     pulls over tcp, against plain sockets that spin and then poll, in turns\n"
    "  local   views and copies of leases of the same host\n"
    "  stage   staging and publishing\n"
    "  idle    what a gateway and a worker cost that do nothing\n"
    "  --netns between two network namespaces joined by a veth pair (tcp and idle; needs root)\n"
    "Without a name all run. Example: tensorferry_bench tcp --netns --json\n";

}  // namespace

int main(int argc, char** argv) {
  using namespace tensorferry::bench;
  const std::pair<std::string, void (*)(const Options&)> benchmarks[] = {
      {"tcp", BenchTcp}, {"local", BenchLocal}, {"stage", BenchStage}, {"idle", BenchIdle}};
  Options options;
  options.self = argv[0];
  std::vector<std::string> chosen;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--serve" && i + 2 < argc) {
      ServeGateway(argv[i + 1], argv[i + 2]);
    } else if (arg == "--json") {
      options.json = true;
    } else if (arg == "--netns") {
      options.netns = true;
    } else if (arg == "--rounds" && i + 1 < argc && std::atoi(argv[i + 1]) > 0) {
      options.rounds = std::atoi(argv[++i]);
    } else if (arg == "--help") {
      std::fputs(kUsage, stdout);
      return 0;
    } else if (std::ranges::any_of(benchmarks, [&](const auto& b) { return b.first == arg; })) {
      chosen.push_back(arg);
    } else {
      std::fputs(kUsage, stderr);
      return 2;
    }
  }
  if (chosen.empty() && options.netns) chosen = {"tcp", "idle"};
  std::optional<Namespaces> namespaces;
  if (options.netns) namespaces.emplace();
  for (const auto& [name, run] : benchmarks) {
    if (chosen.empty() || std::ranges::count(chosen, name) > 0) run(options);
  }
  return 0;
}
