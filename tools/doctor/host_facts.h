// What of this machine decides whether a lane works: limits, /dev/shm, namespaces, RDMA devices.
//
//   HostFacts facts = ReadHostFacts({.ask_ucx = true});
//   for (const HostCheck& check : HostChecks()) check.examine(facts, settings);
//
// A plain struct, so that a test describes any machine by filling it in. What cannot be read is
// left out, and no check complains of it.
// Thread-safety: a value; reading it makes a memfd for a moment and, with ask_ucx, runs `ucx_info`.
#ifndef TENSORFERRY_TOOLS_DOCTOR_HOST_FACTS_H_
#define TENSORFERRY_TOOLS_DOCTOR_HOST_FACTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "tensorferry/base/host.h"

namespace tensorferry::tools {

struct RdmaPort {
  std::string name = {};    // as UCX names it: "mlx5_0:1"
  std::string detail = {};  // "4: ACTIVE, InfiniBand, 200 Gb/sec (4X HDR)"
  bool active = false;
  // Its verbs device (/dev/infiniband/uverbs0), and whether this user may open it.
  std::string verbs = {};
  bool accessible = false;
};

struct HostFacts {
  HostIdentity identity = {};
  // Whether engine/local sees a worker's process in any pid namespace: from Linux 6.5 on.
  bool sees_any_pid_namespace = true;
  // /proc/self/uid_map maps every user to itself: the user namespace of the system.
  bool own_uids = true;

  absl::Status dev_shm = {};  // whether files can be made there
  uint64_t dev_shm_bytes = 0;
  uint64_t dev_shm_free_bytes = 0;

  // Whether an arena can be made: memory without a name, sealed.
  absl::Status memfd = {};
  // The most that this process could have, and what says so.
  uint64_t memory_bytes = UINT64_MAX;
  std::string memory_limit = {};

  // RLIMIT_MEMLOCK and RLIMIT_NOFILE. None: unlimited.
  std::optional<uint64_t> memlock_bytes = {};
  std::optional<uint64_t> open_files = {};
  std::optional<uint64_t> max_map_count = {};
  // Of the Yama module; none: it is not there.
  std::optional<uint64_t> ptrace_scope = {};

  std::vector<RdmaPort> rdma = {};
  // What UCX says that it reads by between two processes over a network, "rc_mlx5/mlx5_0:1". Empty:
  // it was not asked, or there is no `ucx_info`.
  std::string ucx_choice = {};
};

struct HostFactsOptions {
  std::string root = {};  // in front of /proc, /sys and /dev, for tests
  std::string rdma_devices = "/sys/class/infiniband";  // its folder
  bool ask_ucx = false;                                // takes a moment
};

HostFacts ReadHostFacts(const HostFactsOptions& options);

// The first way to a peer in what UCX prints of an endpoint, as `ucx_info -e` does: "tcp/lo". Empty:
// none that is understood.
std::string ParseUcxLane(std::string_view text);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_DOCTOR_HOST_FACTS_H_
