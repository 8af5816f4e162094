#include "tools/doctor/peer_checks.h"

#include <array>
#include <chrono>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "tensorferry/base/contains.h"
#include "tensorferry/base/text.h"
#include "tensorferry/base/version.h"
#include "tensorferry/wire/descriptor.h"
#include "tools/bytes_text.h"
#include "tools/setting_flags.h"

namespace tensorferry::tools {
namespace {

std::vector<Way> Sending(std::initializer_list<std::string_view> transports) {
  return WaysOf(transports, Direction::kSend);
}

std::string Seconds(Duration d) {
  return StrCat(std::chrono::duration_cast<std::chrono::seconds>(d).count(), " s");
}

bool SameHost(const HostFacts& here, const Capabilities& worker) {
  return here.identity.boot_id != BootId{} && here.identity.boot_id == worker.host.boot_id;
}

// "environment SMG_MM_PIXEL_RDMA", where it was that set the lanes.
std::string OriginOfMode(const Settings& settings) {
  return settings.OriginOf(IsChosen(settings, {"mode"}) ? "mode" : "pixel_rdma").ToString();
}

Finding CheckVersions(const HostFacts&, const Settings&, const Capabilities& worker) {
  Finding finding{.ways = Sending({"local", "tcp", "ucx"})};
  if (worker.stock()) {
    finding.evidence = StrCat("tensorferry ", Version(), " here, a stock worker there");
    return finding;
  }
  finding.evidence = StrCat("tensorferry ", Version(), " here, ", worker.version,
                            " at the worker; descriptors of ", "version ", wire::kDescriptorVersion,
                            " here, ", absl::StrJoin(worker.descriptor_versions, ", "), " there");
  if (Contains(worker.descriptor_versions, uint32_t{wire::kDescriptorVersion})) return finding;
  return finding.Off("gateway and worker share no version of the descriptor",
                     "install the same version of tensorferry at both ends");
}

Finding CheckHost(const HostFacts& here, const Settings&, const Capabilities& worker) {
  Finding finding{.ways = Sending({"local"})};
  const bool known = worker.host.boot_id != BootId{};
  finding.evidence =
      StrCat("boot id ", BootIdText(here.identity.boot_id), " here, ",
             known ? BootIdText(worker.host.boot_id) : "none said", " at the worker");
  if (!known || SameHost(here, worker)) return finding;
  return finding.Off("the worker is on another host", "across hosts use lane remote");
}

Finding CheckShmNamespace(const HostFacts& here, const Settings&, const Capabilities& worker) {
  Finding finding{.ways = Sending({"file"})};
  const std::string& there = worker.host.shm_namespace;
  finding.evidence = StrCat("/dev/shm is ", here.identity.shm_namespace, " here, ",
                            there.empty() ? "not said" : there, " at the worker");
  if (there.empty() || there == here.identity.shm_namespace) return finding;
  return finding.Off(
      "gateway and worker do not see the same /dev/shm",
      SameHost(here, worker)
          ? "let both containers share one: docker run --ipc=container:NAME, in Kubernetes one "
            "emptyDir of medium Memory at /dev/shm of both"
          : "across hosts use lane remote");
}

Finding CheckUser(const HostFacts& here, const Settings&, const Capabilities& worker) {
  Finding finding{.ways = Sending({"local", "file"})};
  finding.evidence =
      StrCat("uid ", here.identity.uid.value_or(0), " here, ",
             worker.host.uid ? StrCat(*worker.host.uid) : "not known", " at the worker");
  if (!worker.host.uid || worker.host.uid == here.identity.uid) return finding;
  return finding.Off("gateway and worker run as different users, and memory is shared within one",
                     "run both as the same user (User= in a systemd unit, runAsUser in "
                     "Kubernetes), or use lane remote");
}

// Whether both ends are on one host and `namespace_of` it differs; `finding` says what it is.
bool InOtherNamespace(const HostFacts& here, const Capabilities& worker, std::string_view kind,
                      uint64_t HostIdentity::*namespace_of, Finding* finding) {
  const uint64_t ours = here.identity.*namespace_of;
  const uint64_t theirs = worker.host.*namespace_of;
  finding->evidence = StrCat(kind, " namespace ", ours, " here, ",
                             theirs != 0 ? StrCat(theirs) : "not said", " at the worker");
  return theirs != 0 && SameHost(here, worker) && theirs != ours;
}

Finding CheckUserNamespace(const HostFacts& here, const Settings&, const Capabilities& worker) {
  Finding finding{.ways = Sending({"local", "file"})};
  if (!InOtherNamespace(here, worker, "user", &HostIdentity::user_namespace, &finding)) {
    return finding;
  }
  return finding.Degraded(
      "gateway and worker are in different user namespaces, where equal uids may be different "
      "users",
      "run both in one user namespace (docker run --userns=host, podman run --userns=keep-id at "
      "both), or use lane remote");
}

Finding CheckPidNamespace(const HostFacts& here, const Settings&, const Capabilities& worker) {
  Finding finding{.ways = Sending({"local"})};
  if (!InOtherNamespace(here, worker, "pid", &HostIdentity::pid_namespace, &finding) ||
      here.sees_any_pid_namespace) {
    return finding;
  }
  return finding.Degraded(
      "gateway and worker are in different pid namespaces, and before Linux 6.5 a gateway refuses "
      "a "
      "worker whose process it does not see (other_host)",
      "share the namespace (shareProcessNamespace in Kubernetes, docker run --pid), let the "
      "gateway's enclose the worker's, or use lane remote");
}

Finding CheckWorkerLanding(const HostFacts&, const Settings& settings, const Capabilities& worker) {
  Finding finding{.ways = Sending({"file", "tcp", "ucx", "nixl"})};
  if (worker.stock()) {
    finding.evidence = "a stock worker does not say how much it can land";
    return finding;
  }
  finding.evidence =
      StrCat("slot_bytes ", BytesText(settings.slot_bytes), " here, landing memory of ",
             BytesText(worker.landing_bytes), " at the worker");
  if (worker.landing_bytes >= settings.slot_bytes) return finding;
  return finding.Degraded(
      StrCat("tensors between ", BytesText(worker.landing_bytes), " and ",
             BytesText(settings.slot_bytes),
             " fit this gateway's slots, not the worker's landing "
             "memory, and take another lane"),
      "raise the worker's --landing-bytes (SMG_RDMA_LANDING_SLOTS, SMG_RDMA_SLOT_BYTES), or lower "
      "--rdma-slot-bytes here");
}

Finding CheckMessageSize(const HostFacts&, const Settings& settings, const Capabilities& worker) {
  Finding finding{.ways = Sending({"grpc"})};
  if (worker.max_inline_bytes == 0) {
    finding.evidence = "the worker names no largest message";
    return finding;
  }
  finding.evidence = StrCat("slot_bytes ", BytesText(settings.slot_bytes), " here, messages up to ",
                            BytesText(worker.max_inline_bytes), " at the worker");
  if (worker.max_inline_bytes > settings.slot_bytes) return finding;
  return finding.Degraded(
      StrCat("tensors of ", BytesText(settings.slot_bytes),
             " do not fit into a message to this worker: nothing is left when their lane is off"),
      "raise the worker's --max-message-bytes (TOKENSPEED_GRPC_MAX_MESSAGE_BYTES)");
}

Finding CheckTtl(const HostFacts&, const Settings& settings, const Capabilities& worker) {
  Finding finding{.ways = Sending({"local", "tcp", "ucx", "nixl"})};
  if (!worker.hold) {
    finding.evidence = "the worker does not say how long it waits for a tensor";
    return finding;
  }
  finding.evidence = StrCat("leases end after ", Seconds(settings.slot_ttl()),
                            " here, the worker waits up to ", Seconds(*worker.hold));
  if (settings.slot_ttl() > *worker.hold) return finding;
  return finding.Degraded(
      "leases end while the worker may still wait for them or read them",
      "give this gateway the worker's --rdma-landing-wait-s and --rdma-read-timeout-s "
      "(SMG_RDMA_LANDING_WAIT_S, SMG_RDMA_READ_TIMEOUT_S), or raise --rdma-slot-ttl-s");
}

// `here`: this gateway was told to use the lane.
Finding CompareSwitches(Finding finding, Lane lane, bool here, const Settings& settings,
                        const Capabilities& worker) {
  std::vector<std::string> lanes;
  for (const Lane l : worker.lanes) lanes.emplace_back(LaneName(l));
  if (!IsChosen(settings, {"mode", "pixel_rdma"})) {
    finding.evidence = StrCat("no mode is set here; the worker takes ", absl::StrJoin(lanes, ", "));
    return finding;
  }
  const std::string mode =
      StrCat("mode ", ModeName(settings.mode), settings.pixel_rdma ? " with pixel_rdma" : "", " (",
             OriginOfMode(settings), ")");
  if (worker.stock()) {
    finding.evidence = StrCat(mode, " here; a stock worker does not say its lanes");
    return finding;
  }
  finding.evidence = StrCat(mode, " here; the worker takes ", absl::StrJoin(lanes, ", "));
  const bool there = Contains(worker.lanes, lane);
  if (here && !there && settings.mode != Mode::kAuto) {
    return finding.Off(
        StrCat("lane ", LaneName(lane), " is switched on here and not at the worker"),
        lane == Lane::kRemote
            ? "switch it on at the worker: --lanes inline,shm,remote; SMG's: SMG_MM_PIXEL_RDMA=1"
            : "switch it on at the worker: --lanes inline,shm,remote");
  }
  if (!here && there) {
    return finding.Degraded(
        StrCat("the worker takes lane ", LaneName(lane), ", and this gateway never sends by it"),
        lane == Lane::kRemote ? "switch it on here: SMG_MM_PIXEL_RDMA=1, or mode remote"
                              : "set the mode to auto (SMG_MM_TENSOR_TRANSPORT=auto)");
  }
  return finding;
}

Finding CheckShmSwitch(const HostFacts& host, const Settings& settings,
                       const Capabilities& worker) {
  const bool here = settings.mode == Mode::kShm || settings.mode == Mode::kAuto;
  Finding finding =
      CompareSwitches({.ways = Sending({"local", "file"})}, Lane::kShm, here, settings, worker);
  // Between two hosts nobody misses it.
  if (!here && !SameHost(host, worker)) return {.ways = finding.ways, .evidence = finding.evidence};
  return finding;
}

Finding CheckRemoteSwitch(const HostFacts&, const Settings& settings, const Capabilities& worker) {
  return CompareSwitches({.ways = Sending({"tcp", "ucx", "nixl"})}, Lane::kRemote,
                         settings.remote_lane, settings, worker);
}

Finding CheckWorkerEngines(const HostFacts&, const Settings&, const Capabilities& worker) {
  Finding finding{.evidence = StrCat("the worker offers ", absl::StrJoin(worker.transports, ", "))};
  if (worker.unavailable.empty()) {
    finding.ways = Sending({"local", "file", "tcp", "ucx", "nixl"});
    return finding;
  }
  std::vector<std::string> why;
  for (const auto& [transport, reason] : worker.unavailable) {
    if (LaneOfTransport(transport)) finding.ways.push_back({.transport = transport});
    why.push_back(StrCat("the worker has no ", transport, ": ", reason));
  }
  return finding.Off(
      absl::StrJoin(why, "; "),
      "mend it at the worker, and start it anew; tensorferry doctor there says more");
}

constexpr std::array kPeerChecks = std::to_array<PeerCheck>({
    {"versions", CheckVersions},
    {"host", CheckHost},
    {"shm_namespace", CheckShmNamespace},
    {"user", CheckUser},
    {"user_namespace", CheckUserNamespace},
    {"pid_namespace", CheckPidNamespace},
    {"worker_engines", CheckWorkerEngines},
    {"shm_switch", CheckShmSwitch},
    {"remote_switch", CheckRemoteSwitch},
    {"worker_landing", CheckWorkerLanding},
    {"message_size", CheckMessageSize},
    {"ttl", CheckTtl},
});

}  // namespace

std::span<const PeerCheck> PeerChecks() { return kPeerChecks; }

}  // namespace tensorferry::tools
