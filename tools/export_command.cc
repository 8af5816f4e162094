#include "tools/export_command.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tensorferry/base/contains.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/base/net.h"
#include "tensorferry/base/text.h"
#include "tensorferry/exporter/exporter.h"
#include "tools/export_session.h"
#include "tools/library_engines.h"
#include "tools/metrics_flag.h"
#include "tools/output.h"
#include "tools/seconds.h"
#include "tools/settings.h"
#include "tools/signals.h"

namespace tensorferry::tools {
namespace {

struct ExportArguments {
  std::string listen;
  std::vector<std::string> engines;
  std::string local_socket;
  EngineFlags flags;
  uint64_t arena_bytes = ExporterOptions{}.arena_bytes;
  double ttl = std::chrono::duration<double>(ExporterOptions{}.lease_ttl).count();
  uint32_t readers = 1;
  std::string metrics;
  bool json = false;
};

// Carries lease events from the exporter's threads to the one that prints.
class EventQueue {
 public:
  void Add(const LeaseEvent& event) {
    const std::lock_guard<std::mutex> lock(mu_);
    events_.push_back(event);
    (void)::eventfd_write(wake_.get(), 1);
  }
  std::vector<LeaseEvent> TakeAll() {
    const std::lock_guard<std::mutex> lock(mu_);
    eventfd_t count;
    (void)::eventfd_read(wake_.get(), &count);
    return std::exchange(events_, {});
  }
  int fd() const { return wake_.get(); }

 private:
  const UniqueFd wake_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex mu_;
  std::vector<LeaseEvent> events_;
};

// Standard input, line by line, without waiting for it.
class LineReader {
 public:
  bool ended() const { return ended_; }
  // Once there is something to read: calls `line` for every line that is complete.
  template <typename F>
  void Read(F line) {
    char buffer[1 << 16];
    const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof(buffer));
    if (n < 0) {
      ended_ = errno != EINTR && errno != EAGAIN;
      return;
    }
    pending_.append(buffer, static_cast<size_t>(n));
    size_t start = 0;
    for (size_t end; (end = pending_.find('\n', start)) != std::string::npos; start = end + 1) {
      line(std::string_view(pending_).substr(start, end - start));
    }
    pending_.erase(0, start);
    if (n > 0) return;
    ended_ = true;
    if (!pending_.empty()) line(pending_);  // the last line may lack its end
  }

 private:
  std::string pending_;
  bool ended_ = false;
};

std::string ForPeople(const nlohmann::ordered_json& event) {
  std::string line = event["event"];
  for (const auto& [key, value] : event.items()) {
    if (key == "event" || value.is_null()) continue;
    StrAppend(&line, "  ", key, " ", value.is_string() ? value.get<std::string>() : value.dump());
  }
  return line;
}

absl::StatusOr<std::unique_ptr<Exporter>> Start(const ExportArguments& arguments,
                                                const std::string& local_socket, EventQueue* events,
                                                const std::shared_ptr<Metrics>& metrics,
                                                std::string* own_listen) {
  ExporterOptions options;
  options.log = PrintLog("export");
  options.metrics = metrics;
  options.arena_bytes = arguments.arena_bytes;
  options.lease_ttl = ToDuration(arguments.ttl);
  if (Contains(arguments.engines, "tcp")) options.listen = arguments.listen;
  if (Contains(arguments.engines, "local")) options.local_socket = local_socket;
  options.on_event = [events](const LeaseEvent& event) { events->Add(event); };
  Unavailable unavailable(options.log);
  options.on_left_out = [&](std::string_view transport, const absl::Status& why) {
    unavailable.Add(transport, why);
  };
  for (ExportLibrary& library : OpenExportLibraries({.transports = arguments.engines,
                                .flags = arguments.flags,
                                .log = options.log,
                                .metrics = metrics},
                                                    arguments.listen, &unavailable)) {
    if (options.listen.empty()) *own_listen = library.address.ToString();
    options.engines.push_back(std::move(library.engine));
  }
  absl::StatusOr<std::unique_ptr<Exporter>> exporter = Exporter::Create(std::move(options));
  if (!exporter.ok()) return exporter.status();
  if (absl::Status s = unavailable.Settle((*exporter)->transports().empty()); !s.ok()) return s;
  return exporter;
}

// True when the input has ended and with it the last lease; false for a signal.
void Serve(const EndSignals& signals, EventQueue* events, ExportSession* session) {
  LineReader input;
  while (!input.ended() || session->outstanding() > 0) {
    pollfd waits[] = {{.fd = signals.fd(), .events = POLLIN, .revents = 0},
                      {.fd = events->fd(), .events = POLLIN, .revents = 0},
                      {.fd = input.ended() ? -1 : STDIN_FILENO, .events = POLLIN, .revents = 0}};
    if (::poll(waits, std::size(waits), -1) < 0) continue;
    if (waits[0].revents != 0) return;
    if (waits[1].revents != 0) {
      for (const LeaseEvent& event : events->TakeAll()) session->Event(event);
    }
    if (waits[2].revents != 0) {
      input.Read([&](std::string_view line) { session->Line(line); });
    }
  }
}

int Export(const ExportArguments& arguments) {
  const EndSignals signals;
  const absl::StatusOr<ServedMetrics> served = ServeMetrics(arguments.metrics);
  if (!served.ok()) return Fail("export", served.status());
  const LocalSocket local_socket(arguments.local_socket);
  EventQueue events;       // outlives the exporter, whose threads use it
  std::string own_listen;  // where engine/tcp has none
  absl::StatusOr<std::unique_ptr<Exporter>> exporter =
      Start(arguments, local_socket.path(), &events, served->metrics, &own_listen);
  if (!exporter.ok()) return Fail("export", exporter.status());

  const bool json = arguments.json || ::isatty(STDOUT_FILENO) == 0;
  const auto print = [json](const nlohmann::ordered_json& event) {
    json ? PrintJson(event) : PrintLine(ForPeople(event));
  };
  const std::vector<std::string> transports = (*exporter)->transports();
  const bool local = std::find(transports.begin(), transports.end(), "local") != transports.end();
  const std::string listen = own_listen.empty() ? (*exporter)->listen_address() : own_listen;
  using Json = nlohmann::ordered_json;
  Json ready = {{"event", "ready"},
                {"listen", listen.empty() ? Json(nullptr) : Json(listen)},
                {"local_socket", local ? Json(local_socket.path()) : Json(nullptr)},
                {"transports", transports},
                {"arena_bytes", arguments.arena_bytes}};
  if (served->server) ready["metrics"] = served->address();
  print(ready);
  ExportSession session(exporter->get(), arguments.readers, Contains(arguments.engines, "nixl"),
                        print);
  Serve(signals, &events, &session);
  (*exporter)->Close();
  return kDone;
}

}  // namespace

void AddExportCommand(CLI::App& app, int* exit_code) {
  auto arguments = std::make_shared<ExportArguments>();
  CLI::App* verb = app.add_subcommand("export", "Stage files and say how to fetch them");
  verb->footer(
      "Example:\n  echo '42 tensor.bin' | tensorferry export --listen 127.0.0.1:0\n\n"
      "Reads lines: `KEY FILE` exports a file's raw bytes under a number, `cancel KEY` ends a "
      "lease. "
      "Every line is\nanswered, and every lease that ends is told. The end of the input waits for "
      "leases that can still be read; a\nsignal does not. Answers are JSON, one object a line, "
      "unless standard output is a terminal.");
  verb->add_option("--listen", arguments->listen,
                   "IP:PORT that tcp, ucx or nixl readers dial; port 0 picks a free one")
      ->required()
      ->check([](const std::string& text) { return UsageOf(SocketAddress::Parse(text).status()); });
  verb->add_option("--engine", arguments->engines,
                   "local, tcp (both by default), ucx, or nixl, alone: descriptors are then SMG's")
      ->delimiter(',')
      ->check(CLI::IsMember({"local", "tcp", "ucx", "nixl"}));
  verb->add_option("--agent-name", arguments->flags.nixl.agent_name,
                   "name of the nixl agent (default: the one that stock workers look for)");
  AddNixlExportFlags(verb, &arguments->flags.nixl);
  AddUcxExportFlags(verb, &arguments->flags.ucx);
  verb->add_option("--local-socket", arguments->local_socket,
                   "path of the unix socket of engine local (default: a private one)");
  verb->add_option("--arena-bytes", arguments->arena_bytes, "memory for staged files")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  verb->add_option("--ttl", arguments->ttl, "seconds until a lease that is not read expires")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  verb->add_option("--readers", arguments->readers, "how many readers end a lease")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  AddMetricsFlag(verb, &arguments->metrics);
  verb->add_flag("--json", arguments->json, "JSON on a terminal, too");
  verb->callback([arguments, exit_code] {
    if (arguments->engines.empty()) arguments->engines = {"local", "tcp"};
    if (Contains(arguments->engines, "nixl") && arguments->engines.size() > 1) {
      throw CLI::ValidationError("--engine",
                                 "nixl goes alone: a lease has one kind of descriptor here");
    }
    *exit_code = Export(*arguments);
  });
}

}  // namespace tensorferry::tools
