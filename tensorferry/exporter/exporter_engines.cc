// The exporter's engines: which there are, and how they are made, started and asked about.
#include <algorithm>
#include <utility>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/local/local_export_engine.h"
#include "tensorferry/engine/net_way.h"
#include "tensorferry/engine/tcp/tcp_export_engine.h"
#include "tensorferry/exporter/exporter_core.h"

namespace tensorferry {
namespace {

constexpr size_t kMaxEngines = 64;  // the bits of Lease::State::served_by
// Between attempts to start what did not start.
constexpr Duration kFirstRetry = std::chrono::milliseconds(100);
constexpr Duration kLastRetry = std::chrono::seconds(5);

}  // namespace

absl::Status ExporterCore::PlanEngines() {
  const absl::Status not_yet = absl::UnavailableError("it has not been tried yet");
  // What beats sockets stands before them, and readers see by that that this end has it.
  const auto plan = [&](std::string_view transport, auto make, bool preferred = false) -> Slot& {
    const auto tcp = std::find_if(slots_.begin(), slots_.end(),
                                  [](const Slot& slot) { return slot.transport == "tcp"; });
    return *slots_.insert(preferred ? tcp : slots_.end(), {.transport = std::string(transport),
                                                           .make = std::move(make),
                                                           .engine = nullptr,
                                                           .status = not_yet,
                                                           .way = std::nullopt});
  };
  if (!options_.local_socket.empty()) {
    plan("local",
         [options = engine::LocalExportOptions{.socket_path = options_.local_socket,
                                               .max_claim_percent = options_.max_claim_percent,
                                               .expected_uid = std::nullopt,
                                               .log = options_.log,
                                               .metrics = options_.metrics}] {
           return engine::LocalExportEngine::Create(options);
         });
  }
  if (!options_.listen.empty()) {
    engine::TcpExportOptions tcp;
    tcp.log = options_.log;
    tcp.metrics = options_.metrics;
    absl::StatusOr<SocketAddress> listen = SocketAddress::Parse(options_.listen);
    if (!listen.ok()) return Annotate(listen.status(), "listen");
    tcp.listen = *listen;
    for (const std::string& text : options_.advertise) {
      absl::StatusOr<SocketAddress> address = SocketAddress::Parse(text);
      if (!address.ok()) return Annotate(address.status(), "advertise");
      tcp.advertise.push_back(*address);
    }
    if (absl::Status s = engine::CheckListen(tcp.listen, !tcp.advertise.empty()); !s.ok()) return s;
    plan("tcp", [this, tcp]() -> absl::StatusOr<std::unique_ptr<engine::ExportEngine>> {
      absl::StatusOr<std::unique_ptr<engine::TcpExportEngine>> made =
          engine::TcpExportEngine::Create(tcp);
      if (!made.ok()) return made.status();
      const std::unique_lock<std::shared_mutex> lock(engines_mu_);
      listen_address_ = (*made)->address().ToString();
      return *std::move(made);
    });
  }
  for (std::unique_ptr<engine::ExportEngine>& e : options_.engines) {
    one_sided_ = one_sided_ || e->one_sided();
    const bool preferred = e->preferred();
    plan(e->transport(), nullptr, preferred).engine = std::move(e);
  }
  options_.engines.clear();
  for (EngineMaker& maker : options_.make_engines) {
    one_sided_ = one_sided_ || maker.one_sided;
    plan(maker.transport, std::move(maker.make), maker.preferred);
  }
  options_.make_engines.clear();
  if (slots_.size() <= kMaxEngines) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(slots_.size(), " engines are given; an exporter runs at most ", kMaxEngines));
}

absl::Status ExporterCore::MakeEngine(Slot* slot) {
  if (slot->engine) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<engine::ExportEngine>> made = slot->make();
  if (!made.ok()) return made.status();
  // Frames are written from the start on, or never.
  if ((*made)->one_sided() && !one_sided_) {
    return absl::InternalError(
        StrCat("engine/", slot->transport, " is one_sided: say so in its EngineMaker"));
  }
  slot->engine = options_.wrap ? options_.wrap(*std::move(made)) : *std::move(made);
  return absl::OkStatus();
}

absl::Status ExporterCore::RunEngine(Slot* slot) {
  absl::Status status = slot->engine->Start({.data = mapping_->data(),
                                             .size = mapping_->size(),
                                             .memfd = mapping_->fd(),
                                             .max_leases = kMaxLeases,
                                             .instance = instance_},
                                            this);
  if (!status.ok()) return status;
  const std::unique_lock<std::shared_mutex> lock(engines_mu_);
  if (!slot->engine->for_smg()) slot->way = slot->engine->way();
  slot->status = absl::OkStatus();
  slot->runs = true;
  engine_started_.notify_all();
  return absl::OkStatus();
}

void ExporterCore::StartInBackground() {
  Duration pause = kFirstRetry;
  const auto closing = [&] { return closing_; };
  while (true) {
    bool all_run = true;
    for (Slot& slot : slots_) {
      if (slot.runs) continue;
      absl::Status status = MakeEngine(&slot);
      if (status.ok()) status = RunEngine(&slot);
      if (status.ok()) {
        Log(options_.log, LogLevel::kInfo, StrCat("engine/", slot.transport, " runs"));
        continue;
      }
      all_run = false;
      // What cannot start is made anew: its address may have been the trouble.
      if (slot.make) slot.engine.reset();
      if (status == slot.status) continue;
      {
        // Who hears of it below may ask at once.
        const std::unique_lock<std::shared_mutex> lock(engines_mu_);
        slot.status = status;
      }
      Log(options_.log, LogLevel::kWarning,
          StrCat("engine/", slot.transport,
                 " does not run yet, and is tried again: ", status.message()));
    }
    std::unique_lock<std::mutex> lock(mu_);
    if (all_run || starter_wakes_.wait_for(lock, pause, closing)) return;
    pause = std::min(2 * pause, kLastRetry);
  }
}

bool ExporterCore::Serves(size_t place, const Lease::State& lease) const {
  return slots_[place].runs && (lease.served_by >> place & 1) != 0;
}

const ExporterCore::Slot* ExporterCore::SmgSlot() const {
  for (const Slot& slot : slots_) {
    if (slot.runs && slot.engine->for_smg()) return &slot;
  }
  return nullptr;
}

std::vector<std::string> ExporterCore::transports() const {
  const std::shared_lock<std::shared_mutex> lock(engines_mu_);
  std::vector<std::string> out;
  for (const Slot& slot : slots_) {
    if (slot.runs) out.push_back(slot.transport);
  }
  return out;
}

std::vector<std::string> ExporterCore::TransportsOf(const Lease::State& lease) const {
  const std::shared_lock<std::shared_mutex> lock(engines_mu_);
  std::vector<std::string> out;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (Serves(i, lease) || (slots_[i].runs && slots_[i].engine->for_smg())) {
      out.push_back(slots_[i].transport);
    }
  }
  return out;
}

std::vector<EngineState> ExporterCore::engines() const {
  const std::shared_lock<std::shared_mutex> lock(engines_mu_);
  std::vector<EngineState> out;
  for (const Slot& slot : slots_) out.push_back({slot.transport, slot.status});
  return out;
}

std::vector<std::string> ExporterCore::starting() const {
  const std::shared_lock<std::shared_mutex> lock(engines_mu_);
  std::vector<std::string> out;
  for (const Slot& slot : slots_) {
    if (!slot.runs && ReasonOf(slot.status) != Reason::kShutDown) out.push_back(slot.transport);
  }
  return out;
}

absl::Status ExporterCore::WaitStarted(Duration timeout) const {
  std::shared_lock<std::shared_mutex> lock(engines_mu_);
  const Instant until = SaturatingAdd(real_clock_.Now(), timeout);
  const auto all_run = [&] {
    return std::all_of(slots_.begin(), slots_.end(), [](const Slot& s) { return s.runs; });
  };
  const bool done = until == kNever ? (engine_started_.wait(lock, all_run), true)
                                    : engine_started_.wait_until(lock, until, all_run);
  if (done) return absl::OkStatus();
  std::string text;
  for (const Slot& slot : slots_) {
    if (slot.runs) continue;
    StrAppend(&text, text.empty() ? "" : "; ", "engine/", slot.transport,
              " does not run: ", slot.status.message());
  }
  return MakeError(Reason::kTimedOut, text);
}

std::string ExporterCore::listen_address() const {
  const std::shared_lock<std::shared_mutex> lock(engines_mu_);
  return listen_address_;
}

}  // namespace tensorferry
