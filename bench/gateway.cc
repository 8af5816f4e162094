#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>

#include "absl/strings/escaping.h"
#include "bench/bare_sockets.h"
#include "bench/bench.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/base/text.h"
#include "tensorferry/exporter/exporter.h"

namespace tensorferry::bench {
namespace {

constexpr char kNetnsHost[] = "10.77.0.1";

std::string NetnsName(std::string_view which) { return StrCat("tfb-", which, "-", ::getpid()); }

void Shell(const std::string& command) {
  if (std::system(command.c_str()) != 0) Fail(StrCat("failed (--netns needs root): ", command));
}

void Say(const std::string& line) { std::printf("%s\n", line.c_str()); }

[[noreturn]] void ServeBare(const std::string& host) {
  const SocketAddress wanted = *SocketAddress::ParseHost(host, 0);
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_storage storage = {};
  socklen_t length = wanted.ToSockaddr(&storage);
  if (::bind(listener, reinterpret_cast<sockaddr*>(&storage), length) != 0 ||
      ::listen(listener, 16) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    Fail(StrCat("cannot listen on ", host));
  }
  ::fcntl(listener, F_SETFL, O_NONBLOCK);
  Say(SocketAddress::FromSockaddr(storage)->ToString());
  std::fflush(stdout);
  ServeBareSockets(listener, Payloads());
}

[[noreturn]] void ServeOurs(const std::string& host) {
  const std::string socket = StrCat("/tmp/tensorferry-bench-", ::getpid(), ".sock");
  auto exporter = Exporter::Create({.arena_bytes = Payloads().size() + (uint64_t{16} << 20),
                                    .listen = StrCat(host, ":0"),
                                    .local_socket = socket,
                                    .max_claim_percent = 100});
  if (!exporter.ok()) Fail(StdView(exporter.status().message()));
  std::vector<Lease> leases;
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    for (uint64_t v = 0; v < kVariants; ++v) {
      leases.push_back((*exporter)->Export(Payload(i, v), {.ttl = std::chrono::hours(24)}));
      for (const bool local : {false, true}) {
        const auto d = leases.back().Descriptor({.shm = local, .remote = !local});
        if (!d.ok()) Fail(StdView(d.status().message()));
        Say(absl::BytesToHexString(*d));
      }
    }
  }
  std::fflush(stdout);
  // The socket's name goes with this process, which its parent ends by closing its standard input.
  char byte;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
  leases.clear();
  exporter->reset();
  std::exit(0);
}

}  // namespace

void ServeGateway(std::string_view kind, const std::string& host) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (kind == "bare") ServeBare(host);
  ServeOurs(host);
}

Gateway::Gateway(const Options& options, std::string_view kind) {
  std::vector<std::string> args;
  if (options.netns) args = {"ip", "netns", "exec", NetnsName("gateway")};
  args.insert(args.end(), {options.self, "--serve", std::string(kind),
                           options.netns ? kNetnsHost : "127.0.0.1"});
  std::vector<char*> argv;
  argv.reserve(args.size() + 1);
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  int output[2], input[2];
  if (::pipe2(output, O_CLOEXEC) != 0 || ::pipe2(input, O_CLOEXEC) != 0) Fail("pipe");
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(output[1], STDOUT_FILENO);
    ::dup2(input[0], STDIN_FILENO);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(output[1]);
  ::close(input[0]);
  stdin_.Reset(input[1]);
  std::FILE* const in = ::fdopen(output[0], "r");
  const size_t expected = kind == "bare" ? 1 : std::size(kSizes) * kVariants * 2;
  char* line = nullptr;
  size_t room = 0;
  while (lines_.size() < expected) {
    const ssize_t n = ::getline(&line, &room, in);
    if (n <= 0) Fail(StrCat("the ", kind, " gateway did not start"));
    lines_.emplace_back(line, static_cast<size_t>(n) - 1);
  }
  std::free(line);
  std::fclose(in);
}

Gateway::~Gateway() {
  stdin_.Reset();
  if (lines_.size() == 1) ::kill(pid_, SIGTERM);  // bare: knows no other end
  ::waitpid(pid_, nullptr, 0);
}

SocketAddress Gateway::address() const { return *SocketAddress::Parse(lines_[0]); }

Handle Gateway::HandleAt(size_t line, size_t size_index) const {
  return {.transport = "tensorferry",
          .descriptor = absl::HexStringToBytes(lines_[line]),
          .nbytes = kSizes[size_index]};
}

Handle Gateway::TcpHandle(size_t size_index, uint64_t variant) const {
  return HandleAt((size_index * kVariants + variant) * 2, size_index);
}

Handle Gateway::LocalHandle(size_t size_index, uint64_t variant) const {
  return HandleAt((size_index * kVariants + variant) * 2 + 1, size_index);
}

double Gateway::CpuSeconds() const {
  clockid_t clock;
  timespec t = {};
  if (::clock_getcpuclockid(pid_, &clock) != 0 || ::clock_gettime(clock, &t) != 0) {
    Fail("cannot read the gateway's CPU time");
  }
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

Namespaces::Namespaces() {
  const std::string g = NetnsName("gateway");
  const std::string w = NetnsName("worker");
  Shell(StrCat("ip netns add ", g, " && ip netns add ", w));
  Shell(StrCat("ip -n ", g, " link add v0 type veth peer name v0 netns ", w));
  Shell(
      StrCat("ip -n ", g, " addr add ", kNetnsHost, "/24 dev v0 && ip -n ", g, " link set v0 up"));
  Shell(StrCat("ip -n ", w, " addr add 10.77.0.2/24 dev v0 && ip -n ", w, " link set v0 up"));
  const UniqueFd ns(::open(StrCat("/run/netns/", w).c_str(), O_RDONLY | O_CLOEXEC));
  if (!ns || ::setns(ns.get(), CLONE_NEWNET) != 0) Fail("setns");
}

Namespaces::~Namespaces() {
  Shell(StrCat("ip netns del ", NetnsName("gateway"), "; ip netns del ", NetnsName("worker")));
}

}  // namespace tensorferry::bench
