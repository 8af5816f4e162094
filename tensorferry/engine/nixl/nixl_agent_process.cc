#include "tensorferry/engine/nixl/nixl_agent_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "tensorferry/base/error.h"
#include "tensorferry/base/poll.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/nixl/nixl_agent.h"
#include "tensorferry/wire/bytes.h"

extern char** environ;

namespace tensorferry::engine {
namespace {

constexpr size_t kMaxPacket = 64 * 1024;
constexpr Duration kBusyLook = std::chrono::microseconds(250);
constexpr Duration kIdleLook = std::chrono::milliseconds(50);

// The first byte of every packet.
enum class Packet : char {
  kOrder = 'O',         // gateway: a NixlAgentOrder
  kBusy = 'B',          // gateway: readers may read
  kIdle = 'I',          // gateway: none may
  kReady = 'R',         // agent: address u64 | metadata
  kFailed = 'F',        // agent: why, in words
  kNotification = 'N',  // agent: its bytes
};

void AppendNumber(std::string* out, uint64_t value) {
  std::array<std::byte, 8> raw;
  wire::StoreLe(raw.data(), value);
  out->append(reinterpret_cast<const char*>(raw.data()), raw.size());
}

void AppendText(std::string* out, std::string_view text) {
  AppendNumber(out, text.size());
  out->append(text);
}

std::string EncodeOrder(const NixlAgentOrder& order) {
  std::string out(1, static_cast<char>(Packet::kOrder));
  AppendText(&out, order.library.dir);
  AppendNumber(&out, order.library.search.size());
  for (const std::string& dir : order.library.search) AppendText(&out, dir);
  AppendText(&out, order.agent_name);
  AppendNumber(&out, order.progress_delay_us);
  AppendNumber(&out, order.arena_address);
  AppendNumber(&out, order.arena_bytes);
  return out;
}

std::optional<NixlAgentOrder> DecodeOrder(std::string_view packet) {
  if (packet.empty() || packet.front() != static_cast<char>(Packet::kOrder)) return std::nullopt;
  wire::Reader in(std::as_bytes(std::span(packet.data(), packet.size())).subspan(1));
  const auto text = [&in] {
    const uint64_t length = in.U64();
    return std::string(wire::AsText(in.Take(length)));
  };
  NixlAgentOrder order;
  order.library.dir = text();
  for (uint64_t n = in.U64(); n > 0 && in.ok(); --n) order.library.search.push_back(text());
  order.agent_name = text();
  order.progress_delay_us = in.U64();
  order.arena_address = in.U64();
  order.arena_bytes = in.U64();
  if (!in.ok()) return std::nullopt;
  return order;
}

// False when the other end is gone; with MSG_DONTWAIT also when it does not take what it was sent.
bool SendPacket(int socket, std::string_view packet, int flags = 0) {
  ssize_t n;
  do {
    n = ::send(socket, packet.data(), packet.size(), MSG_NOSIGNAL | flags);
  } while (n < 0 && errno == EINTR);
  return n >= 0;
}

// Empty: there is none now. None: the other end is gone.
std::optional<std::string> ReceivePacket(int socket) {
  std::string packet(kMaxPacket, '\0');
  ssize_t n;
  do {
    n = ::recv(socket, packet.data(), packet.size(), MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n < 0 && errno == EAGAIN) return std::string();
  if (n <= 0) return std::nullopt;
  packet.resize(static_cast<size_t>(n));
  return packet;
}

absl::StatusOr<std::span<const std::byte>> MapArena(int memfd, const NixlAgentOrder& order) {
  // Where the gateway has it, so that descriptors outlive this process.
  void* const wanted = reinterpret_cast<void*>(order.arena_address);
  void* at =
      ::mmap(wanted, order.arena_bytes, PROT_READ, MAP_SHARED | MAP_FIXED_NOREPLACE, memfd, 0);
  if (at == MAP_FAILED) at = ::mmap(nullptr, order.arena_bytes, PROT_READ, MAP_SHARED, memfd, 0);
  if (at == MAP_FAILED) return SystemError(errno, "mapping the arena");
  return std::span(static_cast<const std::byte*>(at), order.arena_bytes);
}

std::string ReadyPacket(std::span<const std::byte> arena, const std::string& metadata) {
  std::string packet(1, static_cast<char>(Packet::kReady));
  AppendNumber(&packet, reinterpret_cast<uintptr_t>(arena.data()));
  return packet + metadata;
}

int Refuse(int socket, const absl::Status& status) {
  std::string packet(1, static_cast<char>(Packet::kFailed));
  packet += StdView(status.message());
  (void)SendPacket(socket, packet);
  return 1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NixlAgentProcess>> NixlAgentProcess::Start(
    const NixlAgentProcessOptions& options) {
  std::unique_ptr<NixlAgentProcess> process(new NixlAgentProcess);
  process->stop_timeout_ = options.stop_timeout;
  if (absl::Status s = process->Spawn(options); !s.ok()) return s;
  if (!SendPacket(process->fd(), EncodeOrder(options.order))) {
    return MakeError(Reason::kLaneOff, StrCat("nixl: ", options.program, " ended at once (",
                                              process->HowItEnded(), ")"));
  }
  if (absl::Status s = process->AwaitReady(options.start_timeout); !s.ok()) return s;
  return process;
}

absl::Status NixlAgentProcess::Spawn(const NixlAgentProcessOptions& options) {
  if (::access(options.program.c_str(), X_OK) != 0) {
    return MakeError(Reason::kLaneOff,
                     StrCat("nixl: cannot run the agent's program \"", options.program, "\" (",
                            std::strerror(errno), "); it is installed beside tensorferry"));
  }
  std::array<int, 2> pair;
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) != 0) {
    return SystemError(errno, "socket pair to the NIXL agent");
  }
  socket_.Reset(pair[0]);
  // Out of the way of the numbers that the child gets them under.
  const UniqueFd childs_socket(::fcntl(pair[1], F_DUPFD_CLOEXEC, 10));
  const UniqueFd childs_memfd(::fcntl(options.memfd, F_DUPFD_CLOEXEC, 10));
  ::close(pair[1]);
  if (!childs_socket || !childs_memfd) return SystemError(errno, "descriptors for the NIXL agent");

  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  sigset_t none;
  sigset_t all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  int error = ::posix_spawn_file_actions_init(&files);
  if (error != 0) return SystemError(error, "starting the NIXL agent");
  error = ::posix_spawnattr_init(&attributes);
  if (error != 0) {
    ::posix_spawn_file_actions_destroy(&files);
    return SystemError(error, "starting the NIXL agent");
  }
  // UCX writes to standard output, which may be the gateway's own output.
  (void)::posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  (void)::posix_spawn_file_actions_adddup2(&files, childs_socket.get(), kNixlAgentSocket);
  (void)::posix_spawn_file_actions_adddup2(&files, childs_memfd.get(), kNixlAgentMemfd);
  // A group of its own: a terminal's Ctrl-C is for the gateway, which lets the agent serve until it
  // is done.
  (void)::posix_spawnattr_setpgroup(&attributes, 0);
  (void)::posix_spawnattr_setsigmask(&attributes, &none);
  (void)::posix_spawnattr_setsigdefault(&attributes, &all);
  (void)::posix_spawnattr_setflags(
      &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::string name = options.program;
  std::array<char*, 2> arguments = {name.data(), nullptr};
  error =
      ::posix_spawn(&pid_, options.program.c_str(), &files, &attributes, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    pid_ = -1;
    return SystemError(error, StrCat("starting ", options.program));
  }
  pidfd_.Reset(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  if (!pidfd_) return SystemError(errno, "pidfd of the NIXL agent");
  return absl::OkStatus();
}

absl::Status NixlAgentProcess::AwaitReady(Duration timeout) {
  const RealClock clock;
  const Instant until = SaturatingAdd(clock.Now(), timeout);
  while (true) {
    const std::optional<std::string> packet = ReceivePacket(fd());
    if (!packet) {
      return MakeError(Reason::kLaneOff, StrCat("nixl: the agent's process ended as it started (",
                                                HowItEnded(), "); its output says why"));
    }
    if (!packet->empty() && packet->front() == static_cast<char>(Packet::kFailed)) {
      return MakeError(Reason::kLaneOff, packet->substr(1));
    }
    constexpr size_t kHead = 1 + 8;
    if (packet->size() > kHead && packet->front() == static_cast<char>(Packet::kReady)) {
      arena_address_ =
          wire::LoadLe<uint64_t>(reinterpret_cast<const std::byte*>(packet->data()) + 1);
      metadata_ = packet->substr(kHead);
      return absl::OkStatus();
    }
    if (clock.Now() >= until) {
      return MakeError(Reason::kLaneOff, "nixl: the agent's process does not come up in time");
    }
    std::vector<pollfd> waits = {{fd(), POLLIN, 0}};
    (void)PollUntil(&waits, until, clock.Now());
  }
}

std::string NixlAgentProcess::HowItEnded() {
  siginfo_t info = {};
  if (::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(pidfd_.get()), &info,
               WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return "its end is not known";
  }
  return info.si_code == CLD_EXITED ? StrCat("exit status ", info.si_status)
                                    : StrCat("signal ", info.si_status);
}

NixlAgentProcess::~NixlAgentProcess() {
  if (pid_ < 0) return;
  socket_.Reset();
  if (pidfd_) {
    const RealClock clock;
    std::vector<pollfd> waits = {{pidfd_.get(), POLLIN, 0}};
    if (PollUntil(&waits, SaturatingAdd(clock.Now(), stop_timeout_), clock.Now()) == 0) {
      (void)::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
    }
  } else {
    (void)::kill(pid_, SIGKILL);
  }
  // Its id is ours until here, unless the program around us waits for any child: then there is
  // nothing left to do.
  int status;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
}

bool NixlAgentProcess::SetBusy(bool busy) {
  const char packet = static_cast<char>(busy ? Packet::kBusy : Packet::kIdle);
  // A dead agent is noticed by whoever reads from it, and a stopped one must not stop the gateway.
  return SendPacket(fd(), {&packet, 1}, MSG_DONTWAIT);
}

absl::Status NixlAgentProcess::TakeNotifications(
    const std::function<void(std::string_view)>& on_notification) {
  while (true) {
    const std::optional<std::string> packet = ReceivePacket(fd());
    if (!packet) {
      return MakeError(Reason::kPeerClosed, StrCat("nixl: the agent's process ", pid_,
                                                   " has ended (", HowItEnded(), ")"));
    }
    if (packet->empty()) return absl::OkStatus();
    if (packet->front() == static_cast<char>(Packet::kNotification)) {
      on_notification(std::string_view(*packet).substr(1));
    }
  }
}

int RunNixlAgent() {
  constexpr int socket = kNixlAgentSocket;
  constexpr int memfd = kNixlAgentMemfd;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) (void)::signal(signal, SIG_IGN);
  std::vector<pollfd> waits = {{socket, POLLIN, 0}};
  if (::poll(waits.data(), 1, -1) < 0) return 1;
  const std::optional<std::string> first = ReceivePacket(socket);
  const std::optional<NixlAgentOrder> order = first ? DecodeOrder(*first) : std::nullopt;
  if (!order) return 2;
  const absl::StatusOr<std::span<const std::byte>> arena = MapArena(memfd, *order);
  if (!arena.ok()) return Refuse(socket, arena.status());
  const absl::StatusOr<NixlServer> server = ServeByNixl(
      order->library, {.name = order->agent_name, .progress_delay_us = order->progress_delay_us},
      *arena);
  if (!server.ok()) return Refuse(socket, server.status());
  if (!SendPacket(socket, ReadyPacket(*arena, server->metadata))) return 0;

  bool busy = false;
  bool gateway_lives = true;
  const RealClock clock;
  while (gateway_lives) {
    waits = {{socket, POLLIN, 0}};
    const Instant now = clock.Now();
    (void)PollUntil(&waits, now + (busy ? kBusyLook : kIdleLook), now);
    if (waits[0].revents != 0) {
      const std::optional<std::string> packet = ReceivePacket(socket);
      if (!packet) return 0;
      if (!packet->empty()) busy = packet->front() == static_cast<char>(Packet::kBusy);
    }
    const absl::Status taken = server->agent->TakeNotifications([&](std::string_view bytes) {
      // No key is longer; what is, is no key, and its beginning says so just as well.
      std::string packet(1, static_cast<char>(Packet::kNotification));
      packet += bytes.substr(0, kMaxPacket - 1);
      gateway_lives = SendPacket(socket, packet) && gateway_lives;
    });
    if (!taken.ok()) return 1;
  }
  return 0;
}

}  // namespace tensorferry::engine
