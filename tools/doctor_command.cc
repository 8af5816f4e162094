#include "tools/doctor_command.h"

#include <CLI/CLI.hpp>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "tensorferry/base/contains.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/remote_choice.h"
#include "tensorferry/exporter/exporter.h"
#include "tensorferry/puller/puller.h"
#include "tools/gateway_side.h"
#include "tools/output.h"
#include "tools/seconds.h"
#include "tools/settings.h"
#include "tools/ucx_engines.h"

namespace tensorferry::tools {
namespace {

constexpr uint64_t kTestBytes = uint64_t{1} << 20;

struct DoctorOptions {
  std::string peer;
  std::string listen;
  std::vector<std::string> engines = {"tcp"};
  UcxFlags ucx;
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
  if (check.transport == "ucx" && reason == Reason::kLaneOff) {
    return "install UCX and the module of engine/ucx (docs/ucx.md), or name it with --ucx-module";
  }
  if (check.transport == "ucx" && reason == Reason::kBadOption) {
    return "see docs/ucx.md; without RDMA, engine tcp is the faster and the safer one";
  }
  if (check.transport == "ucx" && reason == Reason::kNoCommonWay) {
    return "start the worker with --engine local,tcp,ucx";
  }
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
absl::Status TryHere(Lane lane, std::string_view transport, const DoctorOptions& doctor) {
  if (lane == Lane::kInline) return absl::OkStatus();  // needs nothing but the RPC itself
  const LocalSocket local_socket("");
  ExporterOptions exporter_options{.arena_bytes = 2 * kTestBytes};
  if (lane == Lane::kShm) exporter_options.local_socket = local_socket.path();
  std::string listen = doctor.listen.empty() ? "127.0.0.1:0" : doctor.listen;
  if (transport == "tcp") exporter_options.listen = listen;
  if (transport == "ucx") {
    auto ucx = OpenUcxExport(doctor.ucx, listen, /*beside_tcp=*/false, {});
    if (!ucx.ok()) return ucx.status();
    listen = (*ucx)->address().ToString();
    exporter_options.engines.push_back(*std::move(ucx));
  }
  absl::StatusOr<std::unique_ptr<Exporter>> exporter =
      Exporter::Create(std::move(exporter_options));
  if (!exporter.ok()) return exporter.status();
  PullerOptions puller_options;
  puller_options.landing_bytes = kTestBytes;
  if (lane == Lane::kRemote) {
    if (transport == "tcp") listen = (*exporter)->listen_address();
    puller_options.allow =
        *AllowList::Parse(std::vector<std::string>{SocketAddress::Parse(listen)->HostText()});
  }
  if (transport == "ucx") {
    auto ucx = OpenUcxPull(doctor.ucx, puller_options.allow, {});
    if (!ucx.ok()) return ucx.status();
    puller_options.engines.push_back(*std::move(ucx));
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
absl::Status TryPeer(Lane lane, std::string_view transport, const DoctorOptions& doctor) {
  const LocalSocket local_socket("");
  absl::StatusOr<std::unique_ptr<GatewaySide>> gateway =
      GatewaySide::Create({.to = doctor.peer,
                           .arena_bytes = 2 * kTestBytes,
                           .shm = lane == Lane::kShm,
                           .files = false,
                           .remote = transport == "tcp",
                           .ucx = transport == "ucx",
                           .ucx_flags = doctor.ucx,
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
Check TryBoth(Lane lane, std::string_view transport, const DoctorOptions& options) {
  const absl::Status here = TryHere(lane, transport, options);
  if (!here.ok()) return {lane, transport, Annotate(here, "on this host")};
  if (options.peer.empty()) return {lane, transport, here};
  return {lane, transport, TryPeer(lane, transport, options)};
}

std::vector<Check> ExamineAll(const DoctorOptions& options) {
  std::vector<Check> checks = {TryBoth(Lane::kInline, "grpc", options),
                               TryBoth(Lane::kShm, "local", options)};
  for (const std::string_view transport : {"tcp", "ucx"}) {
    if (Contains(options.engines, transport)) {
      checks.push_back(TryBoth(Lane::kRemote, transport, options));
    }
  }
  return checks;
}

// Which of its engines lane remote takes, from here to the peer, or to this host.
engine::RemoteChoice ChooseEngine(const DoctorOptions& options) {
  const bool rdma = !engine::ActiveRdmaDevices(options.ucx.rdma_devices).empty();
  // Where nothing depends on it, a library that changes the process is not loaded.
  const bool ucx = (rdma || Contains(options.engines, "ucx")) && OpenUcxModule(options.ucx).ok();
  const engine::RemoteEnd here = {
      .tcp = Contains(options.engines, "tcp"), .ucx = ucx, .rdma = rdma};
  if (options.peer.empty()) return engine::ChooseRemote(here, here);
  absl::StatusOr<std::unique_ptr<GatewaySide>> gateway =
      GatewaySide::Create({.to = options.peer,
                           .arena_bytes = kTestBytes,
                           .shm = false,
                           .files = false,
                           .remote = false,
                           .timeout = std::chrono::duration_cast<Duration>(
                               std::chrono::duration<double>(options.timeout))});
  if (!gateway.ok()) return {"", std::string(gateway.status().message())};
  const absl::StatusOr<std::shared_ptr<const Capabilities>> worker = (*gateway)->AskWorker();
  if (!worker.ok()) return {"", std::string(worker.status().message())};
  return engine::ChooseRemote(here, engine::RemoteEndOf((*worker)->transports));
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
  const engine::RemoteChoice remote = ChooseEngine(options);
  if (options.json) {
    using Json = nlohmann::ordered_json;
    const Json transport = remote.transport.empty() ? Json(nullptr) : Json(remote.transport);
    PrintJson({{"checks", rows}, {"remote", {{"transport", transport}, {"why", remote.why}}}});
  } else {
    PrintLine(options.peer.empty() ? "on this host:" : StrCat("to ", options.peer, ":"));
    for (const Check& check : checks) {
      PrintLine(absl::StrFormat("  %-6s %-5s  %s", AbslView(LaneName(check.lane)),
                                AbslView(check.transport), AbslView(VerdictOf(check))));
      if (check.result.ok()) continue;
      PrintLine(StrCat("         cause: ", check.result.message()));
      PrintLine(StrCat("         fix:   ", FixFor(check)));
    }
    PrintLine(StrCat("lane remote goes over ",
                     remote.transport.empty() ? std::string_view("nothing") : remote.transport,
                     ": ", remote.why));
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
  verb->add_option("--engine", options->engines, "what lane remote is tried over: tcp, ucx")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::IsMember({"tcp", "ucx"}));
  AddUcxExportFlags(verb, &options->ucx);
  verb->add_option("--timeout", options->timeout, "seconds for each test")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  verb->add_flag("--json", options->json, "one JSON object");
  verb->callback([options, exit_code] { *exit_code = Examine(*options); });
}

}  // namespace tensorferry::tools
