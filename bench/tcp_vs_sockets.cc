// How fast is engine/tcp, seen from outside: against plain sockets, in the same run.
//
//   tcp_vs_sockets                 two processes over loopback
//   tcp_vs_sockets --netns         between two network namespaces joined by a veth pair (needs
//   root) tcp_vs_sockets --json          one object a line
//
// Absolute times swing by a factor of two on a shared machine, so both are measured in turns, round
// by round, and the ratio is what counts: the median over the rounds of the bare sockets' p50
// divided by ours. Every payload is compared with what the gateway staged, outside of the timed
// part; neighbouring pulls have different bytes, so that stale ones show.
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "bench/bare_sockets.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/base/net.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/engine_testing.h"
#include "tensorferry/engine/tcp/tcp_export_engine.h"
#include "tensorferry/engine/tcp/tcp_pull_engine.h"

namespace tensorferry::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Case {
  uint64_t bytes;
  int bare_connections;
  int pulls;    // a round
  double goal;  // of the ratio; 0: none
};
constexpr Case kCases[] = {
    {64 << 10, 1, 400, 0.8}, {1 << 20, 1, 150, 0.9}, {9 << 20, 2, 30, 0.95}, {32 << 20, 2, 10, 0}};
constexpr uint64_t kVariants = 2;
constexpr double kIdleGoalPercent = 0.5;

struct Options {
  bool json = false;
  bool netns = false;
  int rounds = 15;
};

[[noreturn]] void Fail(std::string_view why) {
  std::fprintf(stderr, "tcp_vs_sockets: %.*s\n", static_cast<int>(why.size()), why.data());
  std::exit(1);
}

void Shell(const std::string& command) {
  if (std::system(command.c_str()) != 0) Fail(StrCat("failed: ", command));
}

// ---- payloads: both gateways have the same bytes at the same places ----

uint64_t OffsetOf(size_t which, uint64_t variant) {
  uint64_t offset = 0;
  for (size_t i = 0; i < which; ++i) offset += kCases[i].bytes * kVariants;
  return offset + kCases[which].bytes * variant;
}

std::vector<std::byte> Payloads() {
  std::vector<std::byte> out(OffsetOf(std::size(kCases), 0));
  uint64_t state = 0x9e3779b97f4a7c15u;
  for (std::byte& b : out) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    b = static_cast<std::byte>(state >> 32);
  }
  return out;
}

// ---- the gateways, each a process of its own, which says on stdout how to reach it ----

[[noreturn]] void ServeBare(const SocketAddress& listen_on) {
  const std::vector<std::byte> payloads = Payloads();
  const int listener = ::socket(listen_on.is_v6() ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
  sockaddr_storage storage = {};
  socklen_t length = listen_on.ToSockaddr(&storage);
  if (::bind(listener, reinterpret_cast<sockaddr*>(&storage), length) != 0 ||
      ::listen(listener, 16) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    Fail(StrCat("cannot listen on ", listen_on.ToString()));
  }
  ::fcntl(listener, F_SETFL, O_NONBLOCK);
  std::printf("%s\n", SocketAddress::FromSockaddr(storage)->ToString().c_str());
  std::fflush(stdout);
  ServeBareSockets(listener, payloads);
}

[[noreturn]] void ServeOurs(const SocketAddress& listen_on) {
  const std::vector<std::byte> payloads = Payloads();
  engine::FakeLeaseSource leases({.arena_bytes = payloads.size() + (1 << 20)});
  auto engine = engine::TcpExportEngine::Create({.listen = listen_on});
  if (!engine.ok()) Fail(StdView(engine.status().message()));
  if (const auto s = (*engine)->Start(leases.arena(), &leases); !s.ok()) Fail(StdView(s.message()));
  for (size_t i = 0; i < std::size(kCases); ++i) {
    for (uint64_t v = 0; v < kVariants; ++v) {
      const engine::PublishedLease lease = leases.Add(kCases[i].bytes);
      std::memcpy(leases.BytesOf(lease).data(), payloads.data() + OffsetOf(i, v), kCases[i].bytes);
      const auto bytes = wire::EncodeDescriptor(leases.DescriptorOf(lease, {(*engine)->way()}));
      std::printf("%s\n", absl::BytesToHexString(*bytes).c_str());
    }
  }
  std::fflush(stdout);
  for (;;) ::pause();
}

// ---- the worker ----

class OurWorker {
 public:
  explicit OurWorker(const std::vector<std::string>& hex_descriptors)
      : engine_(engine::CreateTcpPullEngine({.allow = *AllowList::Parse({"0.0.0.0/0"})})) {
    for (const std::string& hex : hex_descriptors) {
      const std::string bytes = absl::HexStringToBytes(hex);
      auto d = wire::DecodeDescriptor(std::as_bytes(std::span(bytes)));
      if (!d.ok()) Fail(StdView(d.status().message()));
      descriptors_.push_back(*std::move(d));
    }
  }

  void Pull(size_t which, uint64_t variant, std::span<std::byte> into) {
    const wire::Descriptor& d = descriptors_[which * kVariants + variant];
    auto op = engine_->Start({.descriptor = &d, .offset = 0, .length = d.nbytes, .into = into});
    Clock::time_point moved = Clock::now();
    for (;;) {
      const auto p = op->Step();
      if (p == engine::PullOp::Progress::kDone) break;
      const auto now = Clock::now();
      if (p == engine::PullOp::Progress::kMoved) moved = now;
      if (now - moved < std::chrono::microseconds(100)) continue;
      std::vector<pollfd> waits;
      Instant wake = kNever;
      op->AddWaits(&waits, &wake);
      ::poll(waits.data(), waits.size(), -1);
      moved = Clock::now();
    }
    if (auto r = op->TakeResult(); !r.ok()) Fail(StdView(r.status().message()));
  }

 private:
  std::unique_ptr<engine::PullEngine> engine_;
  std::vector<wire::Descriptor> descriptors_;
};

// ---- processes and namespaces ----

struct Child {
  pid_t pid = -1;
  std::vector<std::string> lines;
};

Child StartGateway(const std::vector<std::string>& prefix, const std::string& self,
                   const std::string& kind, const std::string& host, size_t lines) {
  std::vector<std::string> args = prefix;
  args.insert(args.end(), {self, "--serve", kind, "--host", host});
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  int pipe_fds[2];
  if (::pipe(pipe_fds) != 0) Fail("pipe");
  Child child;
  child.pid = ::fork();
  if (child.pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(pipe_fds[1], STDOUT_FILENO);
    ::close(pipe_fds[0]);
    ::close(pipe_fds[1]);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(pipe_fds[1]);
  std::FILE* in = ::fdopen(pipe_fds[0], "r");
  char* line = nullptr;
  size_t room = 0;
  while (child.lines.size() < lines) {
    const ssize_t n = ::getline(&line, &room, in);
    if (n <= 0) Fail(StrCat("the ", kind, " gateway did not start"));
    child.lines.emplace_back(line, static_cast<size_t>(n) - 1);
  }
  std::free(line);
  std::fclose(in);
  return child;
}

// Two namespaces with a veth pair between them, for as long as this lives.
class Namespaces {
 public:
  Namespaces() : gateway_(StrCat("tfb", ::getpid(), "g")), worker_(StrCat("tfb", ::getpid(), "w")) {
    Shell(StrCat("ip netns add ", gateway_, " && ip netns add ", worker_));
    Shell(StrCat("ip -n ", gateway_, " link add v0 type veth peer name v0 netns ", worker_));
    Shell(StrCat("ip -n ", gateway_, " addr add 10.77.0.1/24 dev v0 && ip -n ", gateway_,
                 " link set v0 up"));
    Shell(StrCat("ip -n ", worker_, " addr add 10.77.0.2/24 dev v0 && ip -n ", worker_,
                 " link set v0 up"));
    const UniqueFd ns(::open(StrCat("/run/netns/", worker_).c_str(), O_RDONLY | O_CLOEXEC));
    if (!ns || ::setns(ns.get(), CLONE_NEWNET) != 0) Fail("setns");
  }
  ~Namespaces() { Shell(StrCat("ip netns del ", gateway_, "; ip netns del ", worker_)); }

  std::vector<std::string> Prefix() const { return {"ip", "netns", "exec", gateway_}; }
  std::string GatewayHost() const { return "10.77.0.1"; }

 private:
  const std::string gateway_;
  const std::string worker_;
};

// ---- measuring ----

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double CpuSeconds(clockid_t clock) {
  timespec t = {};
  ::clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

struct Row {
  uint64_t bytes = 0;
  double bare_us = 0, ours_us = 0, ratio = 0, goal = 0;
};

class Measurement {
 public:
  Measurement(SocketAddress bare, OurWorker* ours) : bare_(bare), ours_(ours) {}

  Row Measure(size_t which, int rounds) {
    const Case& c = kCases[which];
    BareSocketClient bare(bare_, c.bare_connections);
    const Lane bare_lane = [&](uint64_t variant, std::span<std::byte> into) {
      bare.Pull(OffsetOf(which, variant), into);
    };
    const Lane ours_lane = [&](uint64_t variant, std::span<std::byte> into) {
      ours_->Pull(which, variant, into);
    };
    std::vector<double> bare_all, ours_all, ratios;
    for (int round = 0; round <= rounds; ++round) {
      const bool warm_up = round == 0;
      std::vector<double> b, o;
      if (round % 2 == 0) b = Pulls(which, bare_lane);
      o = Pulls(which, ours_lane);
      if (round % 2 != 0) b = Pulls(which, bare_lane);
      if (warm_up) continue;
      ratios.push_back(Median(b) / Median(o));
      bare_all.insert(bare_all.end(), b.begin(), b.end());
      ours_all.insert(ours_all.end(), o.begin(), o.end());
    }
    return {c.bytes, Median(bare_all), Median(ours_all), Median(ratios), c.goal};
  }

 private:
  using Lane = std::function<void(uint64_t variant, std::span<std::byte> into)>;

  std::vector<double> Pulls(size_t which, const Lane& lane) {
    const Case& c = kCases[which];
    const std::span<std::byte> into = std::span(landing_).first(c.bytes);
    std::vector<double> microseconds;
    for (int i = 0; i < c.pulls; ++i) {
      const uint64_t variant = static_cast<uint64_t>(i) % kVariants;
      const Clock::time_point start = Clock::now();
      lane(variant, into);
      microseconds.push_back(
          std::chrono::duration<double, std::micro>(Clock::now() - start).count());
      if (std::memcmp(into.data(), payloads_.data() + OffsetOf(which, variant), c.bytes) != 0) {
        Fail(StrCat("wrong bytes in a pull of ", c.bytes));
      }
    }
    return microseconds;
  }

  const SocketAddress bare_;
  OurWorker* const ours_;
  const std::vector<std::byte> payloads_ = Payloads();
  std::vector<std::byte> landing_ = std::vector<std::byte>(OffsetOf(std::size(kCases), 0));
};

void Print(const Options& options, const Row& row) {
  const char* path = options.netns ? "netns" : "loopback";
  if (options.json) {
    std::printf(
        "{\"benchmark\":\"tcp_vs_sockets\",\"path\":\"%s\",\"nbytes\":%llu,\"bare_p50_us\":%.1f,"
        "\"tensorferry_p50_us\":%.1f,\"ratio\":%.3f,\"goal\":%.2f,\"verified\":true}\n",
        path, static_cast<unsigned long long>(row.bytes), row.bare_us, row.ours_us, row.ratio,
        row.goal);
  } else {
    std::printf("%-9s %8llu KiB  %9.1f  %12.1f  %6.2f", path,
                static_cast<unsigned long long>(row.bytes >> 10), row.bare_us, row.ours_us,
                row.ratio);
    if (row.goal > 0) std::printf("  %5.2f %s", row.goal, row.ratio >= row.goal ? "met" : "MISSED");
    std::printf("\n");
  }
  std::fflush(stdout);
}

void MeasureIdle(const Options& options, pid_t gateway) {
  clockid_t gateway_clock;
  if (::clock_getcpuclockid(gateway, &gateway_clock) != 0) Fail("clock_getcpuclockid");
  const auto percent = [](clockid_t clock, double from, double seconds) {
    return 100 * (CpuSeconds(clock) - from) / seconds;
  };
  const double gateway_from = CpuSeconds(gateway_clock);
  const double worker_from = CpuSeconds(CLOCK_PROCESS_CPUTIME_ID);
  const Clock::time_point start = Clock::now();
  std::this_thread::sleep_for(std::chrono::seconds(3));
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const double g = percent(gateway_clock, gateway_from, seconds);
  const double w = percent(CLOCK_PROCESS_CPUTIME_ID, worker_from, seconds);
  if (options.json) {
    std::printf(
        "{\"benchmark\":\"tcp_idle\",\"gateway_cpu_percent\":%.3f,\"worker_cpu_percent\":%.3f,"
        "\"goal\":%.2f}\n",
        g, w, kIdleGoalPercent);
  } else {
    std::printf("idle, percent of a core: gateway %.3f, worker %.3f (goal below %.1f: %s)\n", g, w,
                kIdleGoalPercent, std::max(g, w) < kIdleGoalPercent ? "met" : "MISSED");
  }
}

void Main(const Options& options, const std::string& self) {
  std::optional<Namespaces> namespaces;
  if (options.netns) namespaces.emplace();
  const std::vector<std::string> prefix =
      namespaces ? namespaces->Prefix() : std::vector<std::string>();
  const std::string host = namespaces ? namespaces->GatewayHost() : "127.0.0.1";
  const Child bare = StartGateway(prefix, self, "bare", host, 1);
  const Child ours = StartGateway(prefix, self, "ours", host, std::size(kCases) * kVariants);
  OurWorker worker(ours.lines);
  Measurement measurement(*SocketAddress::Parse(bare.lines[0]), &worker);
  if (!options.json) {
    std::printf("p50, µs             size  bare socks   tensorferry   ratio   goal\n");
  }
  for (size_t i = 0; i < std::size(kCases); ++i) {
    Print(options, measurement.Measure(i, options.rounds));
  }
  MeasureIdle(options, ours.pid);
  for (const pid_t pid : {bare.pid, ours.pid}) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
}

}  // namespace
}  // namespace tensorferry::bench

int main(int argc, char** argv) {
  using namespace tensorferry;
  bench::Options options;
  std::string serve;
  std::string host;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--json") {
      options.json = true;
    } else if (arg == "--netns") {
      options.netns = true;
    } else if (arg == "--rounds" && i + 1 < argc) {
      options.rounds = std::max(1, std::atoi(argv[++i]));
    } else if (arg == "--serve" && i + 1 < argc) {
      serve = argv[++i];
    } else if (arg == "--host" && i + 1 < argc) {
      host = argv[++i];
    } else {
      std::fprintf(stderr, "usage: tcp_vs_sockets [--netns] [--json] [--rounds N]\n");
      return 2;
    }
  }
  if (!serve.empty()) {
    const SocketAddress listen_on = *SocketAddress::ParseHost(host, 0);
    if (serve == "bare") bench::ServeBare(listen_on);
    bench::ServeOurs(listen_on);
  }
  bench::Main(options, argv[0]);
  return 0;
}
