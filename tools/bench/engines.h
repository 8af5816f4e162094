// What a benchmark can carry tensors by: the engines, and the yardsticks beside them.
//
//   const std::optional<Engine> engine = FindEngine("tcp");
//
// Thread-safety: values and pure functions.
#ifndef TENSORFERRY_TOOLS_BENCH_ENGINES_H_
#define TENSORFERRY_TOOLS_BENCH_ENGINES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/base/net.h"
#include "tensorferry/policy/lane.h"

namespace tensorferry::tools::bench {

struct Engine {
  std::string name;
  Lane lane;
  std::string transport;  // what must carry the bytes, or the run is void
  bool yardstick = false;

  // Needs the gateway's arena mapped.
  bool maps() const { return lane == Lane::kShm && transport != "file"; }
  // Looks for a while before it sleeps.
  bool spins() const { return name != "sockets-blocking"; }
  // The worker reads the gateway's memory by itself.
  std::string ucx_get() const { return name == "ucx-get" ? "emulated" : "off"; }
  // Only by whole calls.
  bool calls() const { return transport == "grpc"; }
};

const std::vector<Engine>& Engines();
std::vector<std::string> EngineNames();
std::optional<Engine> FindEngine(std::string_view name);
// kBadOption, naming what there is.
absl::Status NoEngine(std::string_view name);

// Where bare sockets find a tensor.
struct BareRange {
  SocketAddress server;
  uint64_t offset = 0;
};
std::string FormatRange(const BareRange& range);
// kProtocol.
absl::StatusOr<BareRange> ParseRange(std::string_view text);

}  // namespace tensorferry::tools::bench

#endif  // TENSORFERRY_TOOLS_BENCH_ENGINES_H_
