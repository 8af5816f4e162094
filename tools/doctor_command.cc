#include "tools/doctor_command.h"

#include <CLI/CLI.hpp>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/exporter/exporter.h"
#include "tensorferry/puller/puller.h"
#include "tools/gateway_side.h"
#include "tools/output.h"
#include "tools/seconds.h"
#include "tools/settings.h"

namespace tensorferry::tools {
namespace {

constexpr uint64_t kTestBytes = uint64_t{1} << 20;

struct DoctorOptions {
  std::string peer;
  std::string listen;
  double timeout = 5;
  bool json = false;
};

// What was tried of one lane, and what came of it.
struct Check {
  Lane lane;
  std::string_view transport;
  absl::Status result;
};

// What an operator can do about it. Empty when nothing is wrong.
std::string FixFor(const Check& check) {
  const std::optional<Reason> reason = ReasonOf(check.result);
  if (check.result.ok()) return "";
  if (!reason) return "read the cause; the other lanes are not affected";
  switch (*reason) {
    case Reason::kUnreachable:
      return "start the worker, or correct --peer; between two hosts, open the port";
    case Reason::kNotAllowed:
      return "start the worker with --allow and this gateway's network";
    case Reason::kUidMismatch:
      return "run gateway and worker as the same user, or use lane remote";
    case Reason::kOtherHost:
      return "shared memory needs one host and a socket path that both see; across hosts use lane "
             "remote";
    case Reason::kLaneOff:
    case Reason::kNoCommonWay:
      return StrCat("switch lane ", LaneName(check.lane),
                    " on at the worker: --lanes inline,shm,remote");
    case Reason::kTooLarge:
    case Reason::kLandingFull:
      return "raise the worker's --landing-bytes";
    case Reason::kNoMemory:
      return "raise the limit that the cause names (ulimit, control group), or lower the setting";
    case Reason::kBadAddress:
    case Reason::kAddressInUse:
      return "give --listen an address of this host with a free port";
    case Reason::kTimedOut:
      return "the peer may be stopped or a firewall may drop packets: check both, then --timeout";
    default:
      return std::string(ReasonMeaning(*reason));
  }
}

Outgoing TestTensor() {
  return {.shape = {kTestBytes},
          .dtype = Dtype::kUint8,
          .nbytes = kTestBytes,
          .produce = [](std::span<std::byte> out) {
            for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(i * 167 >> 3);
            return absl::OkStatus();
          }};
}

// Exporter and puller in this process: whether the transport works on this host at all.
absl::Status TryHere(Lane lane, const DoctorOptions& doctor) {
  if (lane == Lane::kInline) return absl::OkStatus();  // needs nothing but the RPC itself
  const LocalSocket local_socket("");
  ExporterOptions exporter_options{.arena_bytes = 2 * kTestBytes};
  if (lane == Lane::kShm) exporter_options.local_socket = local_socket.path();
  if (lane == Lane::kRemote) {
    exporter_options.listen = doctor.listen.empty() ? "127.0.0.1:0" : doctor.listen;
  }
  absl::StatusOr<std::unique_ptr<Exporter>> exporter =
      Exporter::Create(std::move(exporter_options));
  if (!exporter.ok()) return exporter.status();
  PullerOptions puller_options;
  puller_options.landing_bytes = kTestBytes;
  if (lane == Lane::kRemote) {
    const std::string listen = (*exporter)->listen_address();
    puller_options.allow =
        *AllowList::Parse(std::vector<std::string>{SocketAddress::Parse(listen)->HostText()});
  }
  absl::StatusOr<std::unique_ptr<Puller>> puller = Puller::Create(std::move(puller_options));
  if (!puller.ok()) return puller.status();
  Staged staged = (*exporter)->Stage(kTestBytes);
  if (absl::Status s = TestTensor().produce(staged.bytes()); !s.ok()) return s;
  const Lease lease = std::move(staged).Publish({});
  absl::StatusOr<std::string> descriptor = lease.Descriptor();
  if (!descriptor.ok()) return descriptor.status();
  const absl::StatusOr<View> view =
      (*puller)->Pull({.transport = "tensorferry", .descriptor = *descriptor, .nbytes = kTestBytes},
                      {.timeout = ToDuration(doctor.timeout)});
  if (!view.ok()) return view.status();
  if (std::memcmp(view->bytes().data(), lease.bytes().data(), kTestBytes) != 0) {
    return MakeError(Reason::kChecksum, "the bytes that arrived are not those that were sent");
  }
  return absl::OkStatus();
}

// One test tensor over the lane, to the worker and back as a digest.
absl::Status TryPeer(Lane lane, const DoctorOptions& doctor) {
  const LocalSocket local_socket("");
  absl::StatusOr<std::unique_ptr<GatewaySide>> gateway =
      GatewaySide::Create({.to = doctor.peer,
                           .arena_bytes = 2 * kTestBytes,
                           .shm = lane == Lane::kShm,
                           .files = false,
                           .remote = lane == Lane::kRemote,
                           .listen = doctor.listen,
                           .local_socket = local_socket.path(),
                           .timeout = std::chrono::duration_cast<Duration>(
                               std::chrono::duration<double>(doctor.timeout)),
                           .log = {}});
  if (!gateway.ok()) return gateway.status();
  const Mode mode = lane == Lane::kInline ? Mode::kInline
                    : lane == Lane::kShm  ? Mode::kShm
                                          : Mode::kRemote;
  const absl::StatusOr<Delivery> delivery = (*gateway)->Send(TestTensor(), {.mode = mode});
  if (!delivery.ok()) return delivery.status();
  if (delivery->verified == false) {
    return MakeError(Reason::kChecksum, "the worker received other bytes than were sent");
  }
  return absl::OkStatus();
}

// A lane that does not work on this host cannot work from here to the peer either.
absl::Status TryBoth(Lane lane, const DoctorOptions& options) {
  const absl::Status here = TryHere(lane, options);
  if (!here.ok()) return Annotate(here, "on this host");
  return options.peer.empty() ? here : TryPeer(lane, options);
}

std::vector<Check> ExamineAll(const DoctorOptions& options) {
  return {{Lane::kInline, "grpc", TryBoth(Lane::kInline, options)},
          {Lane::kShm, "local", TryBoth(Lane::kShm, options)},
          {Lane::kRemote, "tcp", TryBoth(Lane::kRemote, options)}};
}

std::string_view VerdictOf(const Check& check) { return check.result.ok() ? "ok" : "off"; }

int Examine(const DoctorOptions& options) {
  const std::vector<Check> checks = ExamineAll(options);
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  bool all_off = true;
  for (const Check& check : checks) {
    all_off = all_off && !check.result.ok();
    rows.push_back({{"lane", LaneName(check.lane)},
                    {"transport", check.transport},
                    {"verdict", VerdictOf(check)},
                    {"cause", std::string(check.result.message())},
                    {"fix", FixFor(check)}});
  }
  if (options.json) {
    PrintJson({{"checks", rows}});
  } else {
    PrintLine(options.peer.empty() ? "on this host:" : StrCat("to ", options.peer, ":"));
    for (const Check& check : checks) {
      PrintLine(absl::StrFormat("  %-6s %-5s  %s", AbslView(LaneName(check.lane)),
                                AbslView(check.transport), AbslView(VerdictOf(check))));
      if (check.result.ok()) continue;
      PrintLine(StrCat("         cause: ", check.result.message()));
      PrintLine(StrCat("         fix:   ", FixFor(check)));
    }
  }
  return all_off ? kFailed : kDone;
}

}  // namespace

void AddDoctorCommand(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* verb =
      app.add_subcommand("doctor", "Try every lane, and say what to do about those that are off");
  verb->footer(
      "Example:\n  tensorferry doctor\n  tensorferry doctor --peer 127.0.0.1:50051\n\n"
      "Without --peer, whether each transport works on this host; with it, a real tensor is sent "
      "over "
      "each lane\nto a tensorferry worker. Exits with 1 when no lane works.");
  verb->add_option("--peer", options->peer, "HOST:PORT of a worker");
  verb->add_option("--listen", options->listen, "IP:PORT where the peer fetches from");
  verb->add_option("--timeout", options->timeout, "seconds for each test")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  verb->add_flag("--json", options->json, "one JSON object");
  verb->callback([options, exit_code] { *exit_code = Examine(*options); });
}

}  // namespace tensorferry::tools
