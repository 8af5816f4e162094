#include "tools/doctor/host_checks.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tools/bytes_text.h"
#include "tools/setting_flags.h"

namespace tensorferry::tools {
namespace {

// A gateway has a descriptor or two per worker, a worker as many per gateway.
constexpr uint64_t kFewOpenFiles = 256;
// A quarter of the kernel's default. A process with Python, gRPC and UCX has some thousands.
constexpr uint64_t kFewMaps = 16384;
// Yama lets nobody but root look into another process, and so UCX cannot copy between two.
constexpr uint64_t kPtraceAdminOnly = 2;

std::string CountText(const std::optional<uint64_t>& count) {
  return count ? StrCat(*count) : "not limited";
}

Finding CheckNamespaces(const HostFacts& host, const Settings&) {
  return {.ways = WaysOf({"local", "file"}),
          .evidence = StrCat("uid ", host.identity.uid.value_or(0),
                             host.own_uids ? "" : " (a user namespace's own)", ", user namespace ",
                             host.identity.user_namespace, ", pid namespace ",
                             host.identity.pid_namespace)};
}

Finding CheckDevShm(const HostFacts& host, const Settings& settings) {
  Finding finding{.ways = WaysOf({"file"})};
  if (!host.dev_shm.ok()) {
    finding.evidence = "/dev/shm cannot be written to";
    return finding.Off(std::string(host.dev_shm.message()),
                       "mount a tmpfs at /dev/shm that this user may write to (mode 1777)");
  }
  finding.evidence = StrCat("/dev/shm has ", BytesText(host.dev_shm_bytes), ", of which ",
                            BytesText(host.dev_shm_free_bytes), " are free");
  if (host.dev_shm_free_bytes >= settings.slot_bytes) return finding;
  return finding.Degraded(
      StrCat("a tensor of slot_bytes (", BytesText(settings.slot_bytes),
             ") does not fit into /dev/shm, and takes another lane"),
      "enlarge it (mount -o remount,size=2G /dev/shm; docker run --shm-size; in Kubernetes an "
      "emptyDir of medium Memory), or remove what fills it");
}

Finding CheckMemfd(const HostFacts& host, const Settings&) {
  Finding finding{.ways = WaysOf({"local", "file", "tcp", "ucx", "nixl"}),
                  .evidence = "an arena of 1 MiB was made and sealed"};
  if (host.memfd.ok()) return finding;
  finding.evidence = "an arena of 1 MiB was tried";
  return finding.Off(
      std::string(host.memfd.message()),
      "let the process call memfd_create and fcntl(F_ADD_SEALS): a seccomp profile, a limit or a "
      "kernel before 5.1 forbids it");
}

// `finding` with a verdict on `bytes`, which a setting named `what` asks for.
Finding FitsMemory(Finding finding, const HostFacts& host, std::string_view what, uint64_t bytes,
                   bool chosen, std::string fix) {
  finding.evidence = StrCat(what, " ", BytesText(bytes), "; ", host.memory_limit, " ",
                            BytesText(host.memory_bytes));
  if (bytes <= host.memory_bytes) return finding;
  std::string cause = StrCat(what, " of ", BytesText(bytes), " is more than ", host.memory_limit,
                             " allows (", BytesText(host.memory_bytes), ")");
  return chosen ? finding.Off(std::move(cause), std::move(fix))
                : finding.Degraded(std::move(cause), std::move(fix));
}

Finding CheckArenaMemory(const HostFacts& host, const Settings& settings) {
  return FitsMemory({.ways = WaysOf({"local", "tcp", "ucx", "nixl"}, Direction::kSend)}, host,
                    "arena_bytes", settings.arena_bytes,
                    IsChosen(settings, {"arena_bytes", "pool_slots", "slot_bytes"}),
                    "raise that limit, or lower --rdma-pool-slots, --rdma-slot-bytes or "
                    "--arena-bytes");
}

Finding CheckLandingMemory(const HostFacts& host, const Settings& settings) {
  return FitsMemory({.ways = WaysOf({"file", "tcp", "ucx", "nixl"}, Direction::kReceive)}, host,
                    "landing_bytes", settings.landing_bytes,
                    IsChosen(settings, {"landing_bytes", "landing_slots", "slot_bytes"}),
                    "raise that limit, or lower --rdma-landing-slots, --rdma-slot-bytes or "
                    "--landing-bytes");
}

Finding CheckOpenFiles(const HostFacts& host, const Settings&) {
  Finding finding{.ways = WaysOf({"grpc", "local", "file", "tcp", "ucx", "nixl"}),
                  .evidence = StrCat("ulimit -n is ", CountText(host.open_files))};
  if (!host.open_files || *host.open_files >= kFewOpenFiles) return finding;
  return finding.Degraded(
      StrCat("only ", *host.open_files, " open files: every peer takes one or more"),
      "raise it: ulimit -n 65536, LimitNOFILE= in a systemd unit");
}

Finding CheckMapCount(const HostFacts& host, const Settings&) {
  Finding finding{
      .ways = WaysOf({"local", "tcp", "ucx", "nixl"}),
      .evidence = StrCat("vm.max_map_count is ",
                         host.max_map_count ? StrCat(*host.max_map_count) : "not known")};
  if (!host.max_map_count || *host.max_map_count >= kFewMaps) return finding;
  return finding.Degraded(
      StrCat("only ", *host.max_map_count,
             " mappings per process: arenas, threads and UCX need them, and mapping fails when "
             "they are used up"),
      "raise it: sysctl -w vm.max_map_count=65530");
}

std::vector<const RdmaPort*> ActivePorts(const HostFacts& host) {
  std::vector<const RdmaPort*> out;
  for (const RdmaPort& port : host.rdma) {
    if (port.active) out.push_back(&port);
  }
  return out;
}

Finding CheckMemlock(const HostFacts& host, const Settings& settings) {
  const std::string limit = host.memlock_bytes ? BytesText(*host.memlock_bytes) : "unlimited";
  Finding finding{.ways = WaysOf({"ucx", "nixl"}), .evidence = StrCat("ulimit -l is ", limit)};
  // Only devices lock memory.
  if (ActivePorts(host).empty() || !host.memlock_bytes) return finding;
  const uint64_t needed = std::max(settings.arena_bytes, settings.landing_bytes);
  if (*host.memlock_bytes >= needed) return finding;
  return finding.Degraded(
      StrCat("an RDMA device locks the memory that it reads, up to ", BytesText(needed),
             ", and only ", limit, " may be locked"),
      "ulimit -l unlimited; docker run --ulimit memlock=-1; LimitMEMLOCK=infinity in a systemd "
      "unit; in Kubernetes the capability IPC_LOCK");
}

Finding CheckPtraceScope(const HostFacts& host, const Settings&) {
  Finding finding{.ways = WaysOf({"ucx", "nixl"}),
                  .evidence = host.ptrace_scope
                                  ? StrCat("kernel.yama.ptrace_scope is ", *host.ptrace_scope)
                                  : "there is no Yama, which would restrict it"};
  if (!host.ptrace_scope || *host.ptrace_scope < kPtraceAdminOnly) return finding;
  return finding.Degraded(
      "UCX cannot copy from process to process (cma) on one host, and takes slower ways",
      "sysctl -w kernel.yama.ptrace_scope=1, or use lane shm between processes of one host");
}

// SMG's gateways and ours serve lane remote at an address that they are told.
Finding CheckListenIp(const HostFacts&, const Settings& settings) {
  Finding finding{.ways = WaysOf({"tcp", "ucx", "nixl"}, Direction::kSend)};
  if (!settings.listen_ip.empty()) {
    finding.evidence = StrCat("listen_ip is ", settings.listen());
    return finding;
  }
  finding.evidence = "no listen_ip is set";
  if (!settings.remote_lane) return finding;
  return finding.Degraded(
      "lane remote is switched on, and a gateway without listen_ip does not serve it",
      "name the address of this host that workers reach: --rdma-listen-ip, SMG_RDMA_LISTEN_IP");
}

Finding CheckRdmaDevice(const HostFacts& host, const Settings&) {
  Finding finding{.ways = WaysOf({"ucx", "nixl"}),
                  .evidence = "/sys/class/infiniband shows no device"};
  if (host.rdma.empty()) {
    return finding.Degraded(
        "no RDMA device: UCX moves the bytes over ordinary sockets, slower than tcp does",
        "use tcp (--engine tcp) where no peer needs nixl; in a container, pass the device and "
        "/dev/infiniband in");
  }
  std::vector<std::string> seen;
  std::vector<std::string> closed;
  for (const RdmaPort& port : host.rdma) {
    seen.push_back(StrCat(port.name, " (", port.detail, ")"));
    if (port.active && !port.accessible) {
      closed.push_back(port.verbs.empty() ? StrCat("the verbs device of ", port.name) : port.verbs);
    }
  }
  finding.evidence = absl::StrJoin(seen, ", ");
  const std::vector<const RdmaPort*> active = ActivePorts(host);
  if (active.empty()) {
    return finding.Degraded("no port of an RDMA device is active",
                            "check cable, switch and subnet manager (ibstat)");
  }
  if (closed.size() < active.size()) return finding;
  return finding.Degraded(
      StrCat("this user cannot open ", absl::StrJoin(closed, ", ")),
      "pass the device in (docker run --device /dev/infiniband), and let this user open it");
}

Finding CheckUcxDevice(const HostFacts& host, const Settings&) {
  Finding finding{.ways = WaysOf({"ucx", "nixl"})};
  const std::vector<const RdmaPort*> active = ActivePorts(host);
  if (host.ucx_choice.empty()) {
    finding.evidence = active.empty()
                           ? "no RDMA device to choose, and no ucx_info to ask"
                           : StrCat(active.front()->name,
                                    " by /sys/class/infiniband; there is no ucx_info to ask "
                                    "(package ucx-utils)");
    return finding;
  }
  finding.evidence = StrCat("ucx_info chooses ", host.ucx_choice);
  if (active.empty() || !host.ucx_choice.starts_with("tcp/")) return finding;
  return finding.Degraded(
      StrCat("UCX would take ", host.ucx_choice, ", although ", active.front()->name, " is active"),
      "unset UCX_TLS and UCX_NET_DEVICES, or let them name the device; ucx_info -d lists what UCX "
      "can open");
}

constexpr std::array kHostChecks = std::to_array<HostCheck>({
    {"namespaces", CheckNamespaces},
    {"dev_shm", CheckDevShm},
    {"memfd", CheckMemfd},
    {"arena_memory", CheckArenaMemory},
    {"landing_memory", CheckLandingMemory},
    {"listen_ip", CheckListenIp},
    {"open_files", CheckOpenFiles},
    {"map_count", CheckMapCount},
    {"memlock", CheckMemlock},
    {"ptrace_scope", CheckPtraceScope},
    {"rdma_device", CheckRdmaDevice},
    {"ucx_device", CheckUcxDevice},
});

}  // namespace

std::span<const HostCheck> HostChecks() { return kHostChecks; }

}  // namespace tensorferry::tools
