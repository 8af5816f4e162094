// Runs a benchmark's worker against a gateway, and says what it cost.
//
//   Measurer measurer(link, fetching);
//   absl::StatusOr<Measurement> m = measurer.Measure({.engine = tcp, .nbytes = 1 << 20, …});
//
// A burst: on every stream at once the gateway offers a batch of tensors, which the worker fetches
// and then looks at, byte by byte. Measured is the time from where the bytes are at the gateway
// until they are readable at the worker, with the descriptor's way between the processes in it;
// neither writing the bytes nor looking at them counts, in time or in CPU.
// Thread-safety: none.
// Ownership: link and fetching outlive it.
#ifndef TENSORFERRY_TOOLS_BENCH_MEASURER_H_
#define TENSORFERRY_TOOLS_BENCH_MEASURER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/base/clock.h"
#include "tools/bench/engines.h"
#include "tools/bench/fetcher.h"
#include "tools/bench/link.h"
#include "tools/bench/statistics.h"

namespace tensorferry::tools::bench {

struct Plan {
  Engine engine;
  bool rpc = false;
  bool copy = false;
  bool copy_in = false;
  bool one_by_one = false;
  uint64_t nbytes = 0;
  size_t streams = 1;
  size_t workers = 1;
  size_t batch = 1;
  // Bursts: so many, or as many as that time takes.
  uint64_t count = 0;
  std::optional<Duration> duration = {};
  uint64_t warm_up = 0;
  Duration idle = {};  // then look so long what both sides cost that do nothing
};

struct Measurement {
  std::string transport;  // what carried the bytes
  uint64_t bytes = 0;     // all that was fetched
  Distribution latency_us;
  double gb_per_s = 0;  // of a burst, the median
  // Of the median burst: at the gateway, the descriptor's way, at the worker.
  double gateway_us = 0, handover_us = 0, worker_us = 0;
  double gateway_cpu_s_per_gib = 0, worker_cpu_s_per_gib = 0;
  uint64_t gateway_peak_bytes = 0, worker_peak_bytes = 0;
  int64_t gateway_faults = 0;
  double arena_bytes_per_tensor = 0;
  double gateway_idle_percent = 0, worker_idle_percent = 0;
  Duration clock_error = {};
};

class Measurer {
 public:
  Measurer(Link* link, Fetching* fetching) : link_(link), fetching_(fetching) {}

  // Called now and then with the share that is done.
  using Progress = std::function<void(double)>;
  // kChecksum when a byte is wrong, kProtocol when another transport carried them; what failed.
  absl::StatusOr<Measurement> Measure(const Plan& plan, const Progress& progress);

 private:
  struct Sample;
  struct Phase;
  absl::Status Run(const Plan& plan, uint64_t count, std::optional<Duration> duration,
                   const Progress& progress, Phase* phase);
  void RunStream(const Plan& plan, size_t i, Phase* phase);
  absl::Status Ask(const Plan& plan, size_t i, int64_t key);
  absl::StatusOr<Sample> Burst(const Plan& plan, size_t i, int64_t key);
  absl::StatusOr<std::vector<Offer>> ReadOffers(const Plan& plan, size_t i, int64_t key);
  absl::Status Idle(const Plan& plan, Measurement* out);

  Link* const link_;
  Fetching* const fetching_;
  std::vector<std::unique_ptr<Fetcher>> fetchers_;
  std::atomic<int64_t> next_key_ = 1;
};

}  // namespace tensorferry::tools::bench

#endif  // TENSORFERRY_TOOLS_BENCH_MEASURER_H_
