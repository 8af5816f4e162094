#include "tools/doctor/examination.h"

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_join.h"
#include "tensorferry/base/contains.h"
#include "tensorferry/base/net.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/remote_choice.h"
#include "tools/doctor/engine_checks.h"
#include "tools/doctor/host_checks.h"
#include "tools/doctor/host_facts.h"
#include "tools/doctor/own_worker.h"
#include "tools/doctor/peer.h"
#include "tools/doctor/peer_checks.h"
#include "tools/doctor/transfers.h"

namespace tensorferry::tools {
namespace {

class Examination {
 public:
  Examination(const ExaminationOptions& options, const Settings& settings)
      : options_(options), settings_(settings), transports_({"grpc"}) {
    // In the order of the lanes, each once.
    for (const std::string& transport : ExaminationOptions{}.transports) {
      if (Contains(options.transports, transport)) transports_.emplace_back(transport);
    }
  }

  std::vector<Finding> Run() {
    std::vector<Finding> engines;
    for (const EngineCheck& check : EngineChecks()) {
      if (Contains(transports_, check.transport)) {
        engines.push_back(Named(check.name, check.examine(options_.flags)));
      }
    }
    std::optional<Peer> peer;
    if (!options_.peer.empty()) peer = AskPeer(options_.peer, options_.timeout);
    for (const std::string& transport : transports_) {
      // Without its library there is nothing to be tried.
      if (VerdictOf(engines, Way{.transport = transport}) != Verdict::kOff) Try(transport, peer);
    }
    if (peer) Add(Named("peer", AboutPeer(*peer)));
    for (Finding& finding : engines) Add(std::move(finding));
    const HostFacts host =
        ReadHostFacts({.rdma_devices = options_.flags.ucx.rdma_devices,
                       .ask_ucx = Contains(transports_, "ucx") || Contains(transports_, "nixl")});
    const bool ucx = Contains(transports_, "ucx") &&
                     VerdictOf(engines, Way{.transport = "ucx"}) != Verdict::kOff;
    if (!peer || peer->worker.ok()) {
      Add(Named("remote_choice", AboutRemoteChoice(host, ucx, peer ? &*peer->worker : nullptr)));
    }
    if (peer && peer->worker.ok()) {
      for (const PeerCheck& check : PeerChecks()) {
        Add(Named(check.name, check.examine(host, settings_, *peer->worker)));
      }
    }
    for (const HostCheck& check : HostChecks()) {
      Add(Named(check.name, check.examine(host, settings_)));
    }
    return std::move(findings_);
  }

 private:
  static Finding Named(std::string_view name, Finding finding) {
    finding.check = name;
    return finding;
  }

  // Of its ways those that are examined.
  void Add(Finding finding) {
    std::erase_if(finding.ways, [&](const Way& w) { return !Contains(transports_, w.transport); });
    if (!finding.ways.empty()) findings_.push_back(std::move(finding));
  }

  void Try(const std::string& transport, const std::optional<Peer>& peer) {
    const Way send{.transport = transport, .direction = Direction::kSend};
    const Way receive{.transport = transport, .direction = Direction::kReceive};
    const bool listens = *LaneOfTransport(transport) == Lane::kRemote && !Listen().empty();
    const Transfer here = TryHere(transport, "");
    if (!peer && !listens) return AddTransfer({send, receive}, here);
    if (!peer) AddTransfer({send}, TryHere(transport, Listen()));
    if (peer && peer->worker.ok()) {
      AddTransfer({send}, TryTransfer(transport, TransferTo(options_.peer, Listen())));
    }
    AddTransfer({receive}, here);
  }

  void AddTransfer(std::vector<Way> ways, const Transfer& transfer) {
    Finding finding{.check = "transfer", .ways = std::move(ways), .evidence = transfer.evidence};
    if (!transfer.status.ok()) finding.Off(std::string(transfer.status.message()), transfer.fix);
    Add(std::move(finding));
  }

  // To a worker in this process.
  Transfer TryHere(const std::string& transport, const std::string& listen) const {
    OwnWorkerOptions options{.flags = options_.flags};
    if (transport != "grpc") options.transports = {transport};
    // A --listen that is no address is told of by the transfer.
    if (const auto address = SocketAddress::Parse(listen); address.ok()) {
      options.allow = *AllowList::Parse(std::vector<std::string>{address->HostText()});
    }
    const absl::StatusOr<std::unique_ptr<OwnWorker>> worker = OwnWorker::Start(options);
    if (!worker.ok()) {
      return {worker.status(), "a worker in this process could not be started",
              FixFor(worker.status(), transport, Stage::kPreparing)};
    }
    return TryTransfer(transport, TransferTo((*worker)->address(), listen));
  }

  TransferOptions TransferTo(const std::string& to, const std::string& listen) const {
    return {.to = to,
            .listen = listen,
            .timeout = options_.timeout,
            .flags = options_.flags,
            .assume_pull = settings_.assume_pull};
  }

  // The port of the settings may be that of a gateway that runs: any other does as well.
  std::string Listen() const {
    if (!options_.listen.empty() || settings_.listen_ip.empty()) return options_.listen;
    return SocketAddress::ParseHost(settings_.listen_ip, 0)->ToString();
  }

  Finding AboutPeer(const Peer& peer) const {
    Finding finding{.ways = {}, .evidence = peer.evidence};
    for (const std::string& transport : transports_) finding.ways.push_back({transport});
    if (peer.worker.ok()) return finding;
    return finding.Off(std::string(peer.worker.status().message()), peer.fix);
  }

  // Which engine lane remote takes where more than one would do. `worker` null: this host at both
  // ends.
  Finding AboutRemoteChoice(const HostFacts& host, bool ucx, const Capabilities* worker) const {
    Finding finding{.ways = WaysOf({"tcp", "ucx"}, Direction::kSend)};
    std::vector<std::string> devices;
    for (const RdmaPort& port : host.rdma) {
      if (port.active) devices.push_back(port.name);
    }
    const engine::RemoteEnd here{
        .tcp = Contains(transports_, "tcp"), .ucx = ucx, .rdma = !devices.empty()};
    engine::RemoteEnd there = here;
    std::vector<std::string> their_devices = devices;
    if (worker != nullptr) {
      there = engine::RemoteEndOf(worker->transports);
      there.rdma = there.rdma || !worker->rdma_devices.empty();
      their_devices = worker->rdma_devices;
    }
    const engine::RemoteChoice choice = engine::ChooseRemote(here, there);
    const auto named = [](const std::vector<std::string>& names) {
      return names.empty() ? std::string("none") : absl::StrJoin(names, ", ");
    };
    finding.evidence = StrCat(
        "lane remote goes over ",
        choice.transport.empty() ? std::string_view("neither tcp nor ucx") : choice.transport, ": ",
        choice.why, "; active RDMA devices: ", named(devices), " here",
        worker == nullptr ? "" : StrCat(", ", named(their_devices), " at the worker"));
    if (choice.transport == "ucx" || !here.rdma || !there.rdma || !Contains(transports_, "ucx")) {
      return finding;
    }
    return finding.Degraded(
        StrCat("both ends have RDMA devices, and lane remote does not use them: ", choice.why),
        "install UCX and its module at both ends, and name ucx in --engine there (docs/ucx.md)");
  }

  const ExaminationOptions& options_;
  const Settings& settings_;
  std::vector<std::string> transports_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> Examine(const ExaminationOptions& options, const Settings& settings) {
  return Examination(options, settings).Run();
}

}  // namespace tensorferry::tools
