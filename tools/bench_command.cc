#include "tools/bench_command.h"

#include <grpc/support/log.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tensorferry/base/contains.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/base/version.h"
#include "tensorferry/engine/tcp_socket.h"
#include "tools/bench/engines.h"
#include "tools/bench/fetcher.h"
#include "tools/bench/gateway.h"
#include "tools/bench/link.h"
#include "tools/bench/measurer.h"
#include "tools/bench/report.h"
#include "tools/bench/usage.h"
#include "tools/bytes_text.h"
#include "tools/output.h"
#include "tools/seconds.h"
#include "tools/signals.h"

namespace tensorferry::tools {
namespace {

struct BenchArguments {
  std::vector<std::string> engines = {};
  std::vector<std::string> lanes = {};
  std::vector<uint64_t> sizes = {64 << 10, 1 << 20, 9 << 20, 32 << 20};
  size_t concurrency = 1;
  size_t workers = 1;
  size_t batch = 1;
  bool one_by_one = false;
  bool rpc = false;
  bool copy = false;
  bool export_copy = false;
  std::vector<uint64_t> counts = {};  // none, one for all sizes, or one for each
  double duration = 0;
  std::optional<uint64_t> warm_up = {};
  double idle = 0;
  uint64_t corrupt = 0;
  std::string peer = {};
  std::string gateway = {};
  std::vector<std::string> allow = {};
  std::string nixl_lib = {};
  std::string serve = {};
  std::vector<int> serve_streams = {};
  bool json = false;
  bool csv = false;
};

// About 512 MiB of each size: small ones often, large ones long enough.
uint64_t BurstsOf(uint64_t nbytes) {
  return std::clamp<uint64_t>((uint64_t{512} << 20) / std::max<uint64_t>(nbytes, 1), 16, 1000);
}

std::string EngineOfLane(Lane lane) {
  switch (lane) {
    case Lane::kInline:
      return "grpc";
    case Lane::kShm:
      return "local";
    case Lane::kRemote:
      return "tcp";
  }
  return "";
}

// The engines that flags name, in that order.
std::vector<bench::Engine> ChosenEngines(const BenchArguments& arguments) {
  std::vector<std::string> names = arguments.engines;
  for (const std::string& lane : arguments.lanes) names.push_back(EngineOfLane(*ParseLane(lane)));
  if (names.empty()) names = {"local", "tcp"};
  std::vector<bench::Engine> engines;
  engines.reserve(names.size());
  for (const std::string& name : names) engines.push_back(*bench::FindEngine(name));
  return engines;
}

// The share that is done, on a terminal.
class ProgressLine {
 public:
  ~ProgressLine() { Clear(); }
  void Show(const std::string& what, double share) {
    const Instant now = RealClock().Now();
    if (!terminal_ || now < next_) return;
    next_ = now + std::chrono::milliseconds(200);
    std::fprintf(stderr, "\r\x1b[K%s: %.0f %%", what.c_str(), 100 * std::min(share, 1.0));
  }
  void Clear() {
    if (terminal_) std::fputs("\r\x1b[K", stderr);
  }

 private:
  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  Instant next_ = {};
};

// One engine: its own gateway, and everything that is measured with it.
class EngineRun {
 public:
  EngineRun(const BenchArguments& arguments, bench::Engine engine)
      : arguments_(arguments), engine_(std::move(engine)) {}

  // True when every size has a figure.
  bool Run(bench::Report* report, ProgressLine* progress) {
    bool all = true;
    for (size_t i = 0; i < arguments_.sizes.size(); ++i) {
      const bench::Plan plan = PlanOf(i);
      const absl::StatusOr<bench::Measurement> measured = Measure(plan, progress);
      progress->Clear();
      if (measured.ok()) {
        report->Measured(plan,
                         {.machine = bench::MachineText(),
                          .version = std::string(Version()),
                          .gateway_machine = link_->machine(),
                          .gateway_version = link_->version()},
                         *measured);
        continue;
      }
      report->Failed(plan, measured.status());
      PrintError("bench",
                 Annotate(measured.status(), StrCat(engine_.name, ", ", BytesText(plan.nbytes))));
      all = false;
      // The two ends may be in the middle of something.
      Close();
    }
    return all;
  }

 private:
  bench::Plan PlanOf(size_t i) const {
    const uint64_t nbytes = arguments_.sizes[i];
    const std::vector<uint64_t>& counts = arguments_.counts;
    const uint64_t count = counts.empty()       ? BurstsOf(nbytes)
                           : counts.size() == 1 ? counts.front()
                                                : counts[i];
    bench::Plan plan{.engine = engine_,
                     .rpc = arguments_.rpc || engine_.calls(),
                     .copy = arguments_.copy,
                     .copy_in = arguments_.export_copy,
                     .one_by_one = arguments_.one_by_one,
                     .nbytes = nbytes,
                     .streams = arguments_.concurrency,
                     .workers = arguments_.workers,
                     .batch = arguments_.batch,
                     .count = count,
                     .warm_up = arguments_.warm_up.value_or(std::max<uint64_t>(count / 10, 3)),
                     .idle = ToDuration(arguments_.idle)};
    if (arguments_.duration > 0) plan.duration = ToDuration(arguments_.duration);
    return plan;
  }

  absl::StatusOr<bench::Measurement> Measure(const bench::Plan& plan, ProgressLine* progress) {
    if (!measurer_) {
      if (absl::Status s = Open(plan); !s.ok()) return s;
    }
    return measurer_->Measure(plan, [&](double share) {
      progress->Show(StrCat(engine_.name, ", ", BytesText(plan.nbytes)), share);
    });
  }

  absl::Status Open(const bench::Plan& plan) {
    std::optional<SocketAddress> peer;
    if (!arguments_.peer.empty()) peer = *SocketAddress::Parse(arguments_.peer);
    auto link = peer                          ? bench::Link::Dial(*peer, plan.streams)
                : !arguments_.gateway.empty() ? bench::Link::StartProgram(arguments_.gateway)
                                              : bench::Link::Start(plan.streams);
    if (!link.ok()) return link.status();
    bench::FetchOptions options{
        .engine = engine_,
        .largest = *std::max_element(arguments_.sizes.begin(), arguments_.sizes.end()),
        .streams = plan.streams,
        .batch = plan.batch,
        .workers = plan.workers,
        .copy = plan.copy,
        .one_by_one = plan.one_by_one,
        .rpc = plan.rpc,
        .nixl_lib = arguments_.nixl_lib};
    std::vector<std::string> allow = arguments_.allow;
    if (peer) {
      const absl::StatusOr<SocketAddress> local = LocalAddressTowards(*peer);
      if (!local.ok()) return local.status();
      options.host = local->HostText();
      allow.push_back(peer->HostText());
    }
    allow.insert(allow.end(), {"127.0.0.0/8", "::1"});
    options.allow = *AllowList::Parse(allow);
    const bench::Opening opening{.engine = engine_.name,
                                 .copy_in = plan.copy_in,
                                 .largest = options.largest,
                                 .streams = plan.streams,
                                 .batch = plan.batch,
                                 .corrupt = arguments_.corrupt,
                                 .nixl_lib = arguments_.nixl_lib};
    auto fetching = bench::Fetching::Create(std::move(options));
    if (!fetching.ok()) return fetching.status();
    if ((*link)->ours()) {
      bench::Opening complete = opening;
      complete.rpc = (*fetching)->rpc();
      if (absl::Status s = (*link)->Open(complete); !s.ok()) return s;
    }
    link_ = *std::move(link);
    fetching_ = *std::move(fetching);
    measurer_ = std::make_unique<bench::Measurer>(link_.get(), fetching_.get());
    return absl::OkStatus();
  }

  void Close() {
    measurer_.reset();
    link_.reset();
    fetching_.reset();
  }

  const BenchArguments& arguments_;
  const bench::Engine engine_;
  std::unique_ptr<bench::Fetching> fetching_;
  std::unique_ptr<bench::Link> link_;
  std::unique_ptr<bench::Measurer> measurer_;
};

int Measure(const BenchArguments& arguments) {
  bench::Report report(arguments.json  ? bench::Report::Format::kJson
                       : arguments.csv ? bench::Report::Format::kCsv
                                       : bench::Report::Format::kTable,
                       PrintLine);
  ProgressLine progress;
  bool all = true;
  for (const bench::Engine& engine : ChosenEngines(arguments)) {
    all = EngineRun(arguments, engine).Run(&report, &progress) && all;
  }
  return all ? kDone : kFailed;
}

// What Measure starts: streams that were inherited, until they end.
int ServeStreams(const BenchArguments& arguments) {
  bench::Gateway gateway("127.0.0.1");
  for (const int fd : arguments.serve_streams) {
    UniqueFd stream(fd);
    // The first is told that there is a gateway at all.
    if (fd == arguments.serve_streams.front()) {
      const std::string ready = "ready\n";
      if (::send(fd, ready.data(), ready.size(), MSG_NOSIGNAL) !=
          static_cast<ssize_t>(ready.size())) {
        return Fail("bench", SystemError(errno, "--serve-streams"));
      }
    }
    gateway.Add(std::move(stream));
  }
  gateway.Join();
  return kDone;
}

int Serve(const BenchArguments& arguments) {
  const EndSignals end;
  const SocketAddress wanted = *SocketAddress::Parse(arguments.serve);
  const absl::StatusOr<engine::TcpListener> listener = engine::ListenTcp(wanted);
  if (!listener.ok()) return Fail("bench", Annotate(listener.status(), "--serve"));
  const std::string listen = listener->address.ToString();
  if (arguments.json) {
    PrintJson({{"event", "ready"}, {"listen", listen}});
  } else {
    PrintLine(StrCat("benchmarks are served at ", listen));
  }
  bench::Gateway gateway(wanted.HostText());
  for (;;) {
    pollfd waits[] = {{end.fd(), POLLIN, 0}, {listener->socket.get(), POLLIN, 0}};
    if (::poll(waits, std::size(waits), -1) < 0) continue;
    if (waits[0].revents != 0) return kDone;
    UniqueFd stream(::accept4(listener->socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!stream) continue;
    const int on = 1;
    ::setsockopt(stream.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    gateway.Add(std::move(stream));
  }
}

int Bench(const BenchArguments& arguments) {
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  if (!arguments.serve_streams.empty()) return ServeStreams(arguments);
  if (!arguments.serve.empty()) return Serve(arguments);
  return Measure(arguments);
}

// What no single flag can tell.
void Check(const BenchArguments& arguments) {
  const auto refuse = [](const char* flag, const std::string& why) {
    throw CLI::ValidationError(flag, why);
  };
  for (const bench::Engine& engine : ChosenEngines(arguments)) {
    const bool puller = !engine.calls() && !engine.yardstick;
    if (arguments.copy && !puller) refuse("--copy", StrCat(engine.name, " has no views"));
    if (arguments.rpc && engine.yardstick) refuse("--rpc", StrCat(engine.name, " is a yardstick"));
    if (arguments.rpc && engine.transport == "file") {
      refuse("--rpc", "file is for workers that are not ours");
    }
    if (!arguments.gateway.empty() && engine.name != "nixl") {
      refuse("--gateway", "it hands out SMG's descriptors: --engine nixl");
    }
  }
  if (arguments.counts.size() > 1 && arguments.counts.size() != arguments.sizes.size()) {
    refuse("--count", "one number, or as many as there are sizes");
  }
  if (arguments.workers > arguments.concurrency) {
    refuse("--workers", "each needs something to do: raise --concurrency");
  }
  if (!arguments.gateway.empty() &&
      (arguments.concurrency > 1 || arguments.batch > 1 || arguments.rpc)) {
    refuse("--gateway", "it offers one tensor at a time");
  }
}

}  // namespace

void AddBenchCommand(CLI::App& app, int* exit_code) {
  auto arguments = std::make_shared<BenchArguments>();
  CLI::App* verb = app.add_subcommand("bench", "Measure how fast tensors go, and what that costs");
  verb->footer(
      "Example:\n  tensorferry bench\n  tensorferry bench --engine tcp,sockets --sizes 64k,9m "
      "--concurrency 8 --json\n  tensorferry bench --serve 10.0.0.5:7700        on the gateway's "
      "host, and on the worker's:\n  tensorferry bench --peer 10.0.0.5:7700 --engine tcp\n\n"
      "Two processes: a gateway that writes and offers tensors, and this one, which fetches them "
      "and looks at every\nbyte. A time goes from where the bytes are at the gateway until they "
      "are readable here. A size of which a byte\nis wrong, or that another transport carried, "
      "has no figure, and the exit code is 1. What figures mean:\ndocs/performance.md.");
  verb->add_option("--engine", arguments->engines,
                   "what carries them: local, file, tcp, ucx, nixl, grpc (in the message), or a "
                   "yardstick: sockets, sockets-blocking, memcpy (default: local,tcp)")
      ->delimiter(',')
      ->check(CLI::IsMember(bench::EngineNames()));
  verb->add_option("--lane", arguments->lanes, "the lane's own engine: inline, shm, remote")
      ->delimiter(',')
      ->check([](const std::string& text) { return UsageOf(ParseLane(text).status()); });
  verb->add_option("--sizes", arguments->sizes,
                   "bytes of a tensor: 65536, 64k, 9m (default: 64k,1m,9m,32m)")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false));
  verb->add_option("--concurrency", arguments->concurrency, "pulls at a time")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  verb->add_option("--workers", arguments->workers, "pullers that share them")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  verb->add_option("--batch", arguments->batch, "tensors of one pull")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  verb->add_flag("--one-by-one", arguments->one_by_one,
                 "pull the tensors of a batch one after another");
  verb->add_flag("--rpc", arguments->rpc,
                 "whole gRPC calls with a descriptor in them, which the gateway makes");
  verb->add_flag("--copy", arguments->copy, "into memory of the caller instead of a view");
  verb->add_flag("--export", arguments->export_copy,
                 "copy tensors into the arena instead of writing them there");
  verb->add_option("--count", arguments->counts,
                   "pulls of each size, one number or one for each (default: by the size)")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  verb->add_option("--duration", arguments->duration, "seconds for each size, instead of --count")
      ->check(CLI::PositiveNumber);
  verb->add_option("--warm-up", arguments->warm_up,
                   "pulls before those that count (default: a tenth)")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--idle", arguments->idle,
                   "after each size, seconds to look at what two ends cost that do nothing")
      ->check(CLI::PositiveNumber);
  verb->add_option("--corrupt", arguments->corrupt,
                   "change a byte of the tensor with this number, to see that it is noticed")
      ->check(CLI::PositiveNumber);
  const auto address = [](const std::string& text) {
    return UsageOf(SocketAddress::Parse(text).status());
  };
  auto* peer = verb->add_option("--peer", arguments->peer,
                                "IP:PORT of a `bench --serve`, instead of a gateway on this host")
                   ->check(address);
  auto* program =
      verb->add_option(
              "--gateway", arguments->gateway,
              "a program as the gateway, which answers `fill` and `go` as SMG's exporter in "
              "tests/peers does")
          ->excludes(peer);
  auto* serve = verb->add_option("--serve", arguments->serve,
                                 "be the gateway of others, at IP:PORT, on a network that is "
                                 "trusted; port 0 picks one")
                    ->check(address)
                    ->excludes(peer)
                    ->excludes(program);
  verb->add_option("--serve-streams", arguments->serve_streams)
      ->delimiter(',')
      ->group("")  // of the process that this verb starts itself
      ->excludes(serve);
  verb->add_option("--allow", arguments->allow,
                   "networks (CIDR) that may be dialled, besides the peer and this host")
      ->delimiter(',')
      ->check([](const std::string& text) { return UsageOf(AllowList::Parse({text}).status()); });
  verb->add_option("--nixl-lib", arguments->nixl_lib, "folder of libnixl_capi.so");
  auto* json = verb->add_flag("--json", arguments->json, "one JSON object a line");
  verb->add_flag("--csv", arguments->csv, "a table for programs")->excludes(json);
  verb->callback([arguments, exit_code] {
    Check(*arguments);
    *exit_code = Bench(*arguments);
  });
}

}  // namespace tensorferry::tools
