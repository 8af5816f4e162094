#include "tensorferry/engine/local/local_testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tensorferry/base/clock.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/engine_testing.h"
#include "tensorferry/engine/local/local_export_engine.h"
#include "tensorferry/engine/local/local_pull_engine.h"

namespace tensorferry::engine {
namespace {

constexpr size_t kMaxPacket = 8192;

void Require(bool condition, const char* what) {
  if (condition) return;
  std::perror(what);
  std::abort();
}

// Empty when the other side is gone.
std::string ReceivePacket(int socket) {
  std::string packet(kMaxPacket, '\0');
  const ssize_t n = ::recv(socket, packet.data(), packet.size(), 0);
  packet.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return packet;
}

std::string_view TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// State of MakeWorker's child.
struct Worker {
  struct View {
    Landed landed;
    size_t hash = 0;
  };
  std::unique_ptr<PullEngine> engine = CreateLocalPullEngine({});
  std::vector<View> views;

  std::string Pull(std::string_view encoded, bool copy) {
    const wire::Descriptor d = Decoded(encoded);
    std::vector<std::byte> memory(copy ? d.nbytes : 0);
    auto op = engine->Start({.descriptor = &d, .length = d.nbytes, .into = memory});
    absl::StatusOr<Landed> landed = DriveOp(*op);
    if (landed.ok()) op->Acknowledge();
    if (landed.ok() && !copy) {
      const size_t hash = std::hash<std::string_view>()(TextOf(landed->bytes));
      views.push_back({*std::move(landed), hash});
    }
    return ReasonText(landed.status());
  }

  bool Same() const {
    for (const View& view : views) {
      if (std::hash<std::string_view>()(TextOf(view.landed.bytes)) != view.hash) return false;
    }
    return true;
  }
};

}  // namespace

ChildProcess::ChildProcess(const std::function<Handler()>& make_handler) {
  int ends[2];
  Require(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
  UniqueFd ours(ends[0]), theirs(ends[1]);
  pid_ = ::fork();
  Require(pid_ >= 0, "fork");
  if (pid_ > 0) {
    socket_ = std::move(ours);
    return;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ours.Reset();
  {
    const Handler handler = make_handler();
    for (;;) {
      const std::string packet = ReceivePacket(theirs.get());
      if (packet.empty()) break;
      const size_t verb = packet.find('\n');
      const std::string answer = handler(std::string_view(packet).substr(0, verb),
                                         std::string_view(packet).substr(verb + 1));
      if (::send(theirs.get(), answer.data(), answer.size(), MSG_NOSIGNAL) < 0) break;
    }
  }
  ::_exit(0);
}

void ChildProcess::Tell(std::string_view verb, std::string_view argument) {
  const std::string packet = StrCat(verb, "\n", argument);
  Require(::send(socket_.get(), packet.data(), packet.size(), MSG_NOSIGNAL) >= 0, "send");
}

std::string ChildProcess::Hear() {
  pollfd wait = {.fd = socket_.get(), .events = POLLIN, .revents = 0};
  const int limit = static_cast<int>(kTestLimit / std::chrono::milliseconds(1));
  if (::poll(&wait, 1, limit) <= 0) return "(no answer)";
  const std::string answer = ReceivePacket(socket_.get());
  return answer.empty() ? "(died)" : answer;
}

std::string ChildProcess::Ask(std::string_view verb, std::string_view argument) {
  Tell(verb, argument);
  return Hear();
}

void ChildProcess::Kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void ChildProcess::Stop() {
  Require(pid_ > 0, "stop a process that was killed");
  ::kill(pid_, SIGSTOP);
  WaitUntilStopped();
}

void ChildProcess::WaitUntilStopped() {
  int status = 0;
  Require(::waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status), "wait for a stop");
}

void ChildProcess::Continue() {
  Require(pid_ > 0, "continue a process that was killed");
  ::kill(pid_, SIGCONT);
}

ChildProcess::Handler MakeWorker() {
  auto worker = std::make_shared<Worker>();
  return [worker](std::string_view verb, std::string_view argument) -> std::string {
    if (verb == "view" || verb == "copy") return worker->Pull(argument, verb == "copy");
    if (verb == "same") return worker->Same() ? "yes" : "no";
    if (verb == "fork") return std::to_string(ForkSleeper());
    if (verb == "release") {
      worker->views.clear();
      return "ok";
    }
    return "(unknown verb)";
  };
}

ChildProcess::Handler MakeGateway() {
  struct Gateway {
    uint8_t instance = 1;
    std::unique_ptr<FakeLeaseSource> leases;
    std::unique_ptr<LocalExportEngine> engine;
  };
  auto gateway = std::make_shared<Gateway>();
  return [gateway](std::string_view verb, std::string_view argument) -> std::string {
    if (verb == "instance") {
      gateway->instance = static_cast<uint8_t>(std::stoi(std::string(argument)));
      return "ok";
    }
    if (verb == "start") {
      gateway->leases = std::make_unique<FakeLeaseSource>(
          FakeLeaseSource::Options{.instance = gateway->instance});
      auto engine = LocalExportEngine::Create({.socket_path = std::string(argument)});
      if (!engine.ok()) return ReasonText(engine.status());
      gateway->engine = *std::move(engine);
      return ReasonText(gateway->engine->Start(gateway->leases->arena(), gateway->leases.get()));
    }
    if (verb == "publish") {
      const PublishedLease lease = gateway->leases->Add(std::stoull(std::string(argument)));
      gateway->engine->Publish(lease);
      return Encoded(gateway->leases->DescriptorOf(lease, {gateway->engine->way()}));
    }
    return "(unknown verb)";
  };
}

pid_t ForkSleeper() {
  const pid_t child = ::fork();
  Require(child >= 0, "fork");
  if (child > 0) return child;
  ::alarm(static_cast<unsigned>(kTestLimit / std::chrono::seconds(1)) * 2);
  for (;;) ::pause();
}

std::string Encoded(const wire::Descriptor& descriptor) {
  absl::StatusOr<std::string> bytes = wire::EncodeDescriptor(descriptor);
  Require(bytes.ok(), "EncodeDescriptor");
  return *std::move(bytes);
}

wire::Descriptor Decoded(std::string_view bytes) {
  absl::StatusOr<wire::Descriptor> d =
      wire::DecodeDescriptor(std::as_bytes(std::span(bytes.data(), bytes.size())));
  Require(d.ok(), "DecodeDescriptor");
  return *std::move(d);
}

bool Eventually(const std::function<bool()>& condition) {
  const Instant end = SaturatingAdd(RealClock().Now(), kTestLimit);
  while (!condition()) {
    if (RealClock().Now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

size_t OpenFds() {
  size_t n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++n;
  return n;
}

size_t MemfdMappings() {
  size_t n = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:tensorferry") != std::string::npos) ++n;
  }
  return n;
}

std::string ReasonText(const absl::Status& status) { return std::string(ReasonNameOf(status)); }

UniqueFd MakeMemfd(size_t bytes, bool sealed) {
  UniqueFd fd(::memfd_create("tensorferry-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  Require(static_cast<bool>(fd), "memfd_create");
  Require(::ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0, "ftruncate");
  if (sealed) {
    Require(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0, "F_ADD_SEALS");
  }
  return fd;
}

}  // namespace tensorferry::engine
