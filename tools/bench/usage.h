// What a side costs: CPU time and memory of a process and of all that it started; and on which
// machine.
//
//   absl::StatusOr<Usage> before = UsageOfTree(::getpid(), gateway);
//
// A process that has ended is no longer counted. Thread-safety: reads of /proc.
#ifndef TENSORFERRY_TOOLS_BENCH_USAGE_H_
#define TENSORFERRY_TOOLS_BENCH_USAGE_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace tensorferry::tools::bench {

struct Usage {
  double cpu_seconds = 0;
  uint64_t peak_bytes = 0;  // resident, since the last ResetPeak
};

// `without`: a child that is a side of its own; 0: none. kSystem for a process that is not there.
absl::StatusOr<Usage> UsageOfTree(pid_t root, pid_t without);
// From now on peaks count anew. Where the system does not permit that, they are those of the whole
// life.
void ResetPeak(pid_t root, pid_t without);

// Of the calling thread.
double ThreadCpuSeconds();
// Page faults of the calling thread, so far.
long ThreadFaults();

// "AMD EPYC 7B13, 2 cores, Linux 6.1.0-18-amd64"
std::string MachineText();

}  // namespace tensorferry::tools::bench

#endif  // TENSORFERRY_TOOLS_BENCH_USAGE_H_
