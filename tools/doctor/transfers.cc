#include "tools/doctor/transfers.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>

#include "absl/strings/str_format.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tools/bytes_text.h"
#include "tools/doctor/host_facts.h"
#include "tools/gateway_side.h"
#include "tools/settings.h"

namespace tensorferry::tools {
namespace {

constexpr uint64_t kTestBytes = uint64_t{1} << 20;
// The first pays for connecting; the fastest says what the lane can do.
constexpr int kTries = 3;

Outgoing TestTensor() {
  return {.shape = {kTestBytes},
          .dtype = Dtype::kUint8,
          .nbytes = kTestBytes,
          .produce = [](std::span<std::byte> out) {
            for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(i * 167 >> 3);
            return absl::OkStatus();
          }};
}

GatewaySideOptions SideFor(std::string_view transport, const TransferOptions& options,
                           const LocalSocket& socket) {
  return {.to = options.to,
          .arena_bytes = 4 * kTestBytes,
          .shm = transport == "local",
          .files = transport == "file",
          .remote = {std::string(transport)},
          .flags = options.flags,
          .listen = options.listen,
          .local_socket = socket.path(),
          .timeout = options.timeout,
          .log = {}};
}

std::string SpeedText(uint64_t bytes, Duration took) {
  const double seconds = std::max(std::chrono::duration<double>(took).count(), 1e-9);
  return absl::StrFormat("%s in %.2f ms, %.2f GB/s", BytesText(bytes), seconds * 1e3,
                         static_cast<double>(bytes) / seconds / 1e9);
}

}  // namespace

Transfer TryTransfer(std::string_view transport, const TransferOptions& options) {
  const LocalSocket socket("");
  const absl::StatusOr<std::unique_ptr<GatewaySide>> gateway =
      GatewaySide::Create(SideFor(transport, options, socket));
  if (!gateway.ok()) {
    return {gateway.status(), "nothing could be sent",
            FixFor(gateway.status(), transport, Stage::kPreparing)};
  }
  const std::string listen = (*gateway)->listen_address();
  const std::string from = listen.empty() ? "" : StrCat(", fetched from ", listen);
  const auto failed = [&](const absl::Status& status) -> Transfer {
    return {status, StrCat("a tensor of ", BytesText(kTestBytes), from),
            FixFor(status, transport, Stage::kSending)};
  };
  const LanePolicy policy{.mode = ModeOf(*LaneOfTransport(transport)),
                          .assume_pull = options.assume_pull};
  Duration fastest = Duration::max();
  bool verified = true;
  for (int i = 0; i < kTries; ++i) {
    const absl::StatusOr<Delivery> delivery = (*gateway)->Send(TestTensor(), policy);
    if (!delivery.ok()) return failed(delivery.status());
    if (delivery->transport != transport) {
      return failed(MakeError(Reason::kNoCommonWay,
                              StrCat("it travelled over ", delivery->transport, " instead")));
    }
    if (delivery->verified == false) {
      return failed(MakeError(Reason::kChecksum, "the worker received other bytes than were sent"));
    }
    verified = verified && delivery->verified.has_value();
    fastest = std::min(fastest, delivery->took);
  }
  const std::string carrier = ParseUcxLane((*gateway)->DescribeUcxReaders());
  return {absl::OkStatus(),
          StrCat(SpeedText(kTestBytes, fastest), from,
                 carrier.empty() ? "" : StrCat(", carried by UCX over ", carrier),
                 verified ? "" : ", not verified: the worker does not say"),
          ""};
}

std::string FixFor(const absl::Status& status, std::string_view transport, Stage stage) {
  const std::optional<Reason> reason = ReasonOf(status);
  if (!reason) return "read the cause; the other lanes are not affected";
  switch (*reason) {
    case Reason::kUnreachable:
    case Reason::kTimedOut:
      if (stage == Stage::kPreparing || *LaneOfTransport(transport) != Lane::kRemote) {
        return "see whether the worker is stopped, or needs a longer --timeout";
      }
      return "the worker answers, and cannot reach this gateway: let the network (firewall, "
             "network "
             "policy) pass connections from the worker to the address of the evidence; --listen "
             "IP:PORT fixes the address and the port";
    case Reason::kNotAllowed:
      return "start the worker with --allow and this gateway's network";
    case Reason::kUidMismatch:
      return "run gateway and worker as the same user, or use lane remote";
    case Reason::kOtherHost:
      return "shared memory needs one host, one /dev/shm and a socket path that both see; across "
             "hosts use lane remote";
    case Reason::kLaneOff:
    case Reason::kNoCommonWay:
      if (stage == Stage::kPreparing) {
        return "install here what the cause names; of transports and devices that UCX can open "
               "ucx_info -d has a list";
      }
      return StrCat("switch ", transport, " on at the worker: --lanes inline,shm,remote",
                    NeedsLibrary(transport) ? StrCat(" --engine local,tcp,", transport) : "",
                    transport == "nixl" ? "; for a stock worker that fetches over nixl give "
                                          "--assume-pull here"
                                        : "");
    case Reason::kBadOption:
      return StrCat("mend the flag that the cause names",
                    transport == "ucx" ? ", or use tcp: without RDMA devices at both ends it is "
                                         "the faster and the safer one (docs/ucx.md)"
                                       : "");
    case Reason::kTooLarge:
    case Reason::kLandingFull:
      return "raise the worker's --landing-bytes";
    case Reason::kNoMemory:
      return "raise the limit that the cause names (/dev/shm's size, ulimit, control group), or "
             "lower "
             "the setting";
    case Reason::kBadAddress:
    case Reason::kAddressInUse:
      return "give --listen an address of this host with a free port (ss -ltnp shows who has it)";
    case Reason::kSystem:
      return "the system refused what the cause names; another finding may say why";
    default:
      return std::string(ReasonMeaning(*reason));
  }
}

}  // namespace tensorferry::tools
