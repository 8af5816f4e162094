#include "tensorferry/engine/local/unix_socket.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

#ifndef SO_PEERPIDFD  // Linux 6.5; older headers do not know it
#define SO_PEERPIDFD 77
#endif

namespace tensorferry::engine {
namespace {

constexpr size_t kMaxFds = 3;  // of a welcome

static_assert(sizeof(sockaddr_un::sun_path) == kMaxSocketPathBytes + 1);

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

UniqueFd NewSocket() {
  return UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

// 0 or errno.
int Connect(int socket, const std::string& path) {
  const sockaddr_un address = AddressOf(path);
  return ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0
             ? 0
             : errno;
}

// Whether a listener still stands behind a socket file. When in doubt it does.
bool IsLive(const std::string& path) {
  UniqueFd probe = NewSocket();
  if (!probe) return true;
  const int error = Connect(probe.get(), path);
  if (error == ECONNREFUSED || error == ENOENT) return false;
  if (error != 0) return true;
  // A child that the dead gateway forked may hold its listener open, and will never accept.
  const std::optional<ucred> peer = PeerCredentials(probe.get());
  return !peer || peer->pid <= 0 || ::kill(peer->pid, 0) == 0 || errno != ESRCH;
}

// Serializes gateways that start at the same time on the same path: each would find the same stale
// file, and the slower one would remove the faster one's new one. The lock goes with the
// descriptor. Best effort: others lock directories for reasons of their own, so nobody waits long.
UniqueFd LockDirectoryOf(const std::string& path) {
  const std::string directory = path.substr(0, path.rfind('/') + 1);
  UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int i = 0; fd && i < 100 && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return fd;
}

absl::Status BindError(int error, const std::string& path) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return MakeError(Reason::kBadAddress, StrCat("local socket \"", path,
                                                   "\": its directory does not exist; make it,"
                                                   " or choose another path for the local socket"));
    case EACCES:
    case EPERM:
    case EROFS:
      return MakeError(
          Reason::kBadAddress,
          StrCat("local socket \"", path, "\": no file can be made there (", std::strerror(error),
                 "); choose a directory that this user may"
                 " write to"));
    default:
      return SystemError(error, StrCat("bind local socket \"", path, "\""));
  }
}

// Removes a stale file.
absl::Status ClearPath(const std::string& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) return absl::OkStatus();  // gone meanwhile
  if (!S_ISSOCK(info.st_mode)) {
    return MakeError(Reason::kBadAddress, StrCat("local socket \"", path,
                                                 "\": something that is not a socket is there;"
                                                 " remove it, or choose another path"));
  }
  if (IsLive(path)) {
    return MakeError(Reason::kAddressInUse, StrCat("local socket \"", path,
                                                   "\": another process listens there; choose"
                                                   " another path for the local socket"));
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    return SystemError(errno, StrCat("remove the stale local socket \"", path, "\""));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSocketPath(const std::string& path) {
  const auto bad = [&](std::string_view why) {
    return MakeError(Reason::kBadAddress, StrCat("local socket \"", path, "\" ", why));
  };
  if (path.empty() || path[0] != '/') return bad("is not an absolute path");
  if (path.size() > kMaxSocketPathBytes) {
    return bad(StrCat("has ", path.size(), " bytes, the system's limit is ", kMaxSocketPathBytes,
                      "; choose a shorter path"));
  }
  if (path.find('\0') != std::string::npos) return bad("contains a NUL byte");
  return absl::OkStatus();
}

absl::StatusOr<UnixListener> UnixListener::Listen(const std::string& path) {
  if (absl::Status s = CheckSocketPath(path); !s.ok()) return s;
  UniqueFd fd = NewSocket();
  if (!fd) return SystemError(errno, "socket");
  // Linux gives the file the mode of the descriptor, so there is no moment at which others could
  // connect, and no need to touch the process's umask.
  if (::fchmod(fd.get(), 0600) != 0) return SystemError(errno, "fchmod");

  const UniqueFd lock = LockDirectoryOf(path);
  const sockaddr_un address = AddressOf(path);
  const auto bind = [&] {
    return ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0
               ? 0
               : errno;
  };
  int error = bind();
  if (error == EADDRINUSE) {
    if (absl::Status s = ClearPath(path); !s.ok()) return s;
    error = bind();
  }
  if (error != 0) return BindError(error, path);
  UnixListener listener(path, std::move(fd));
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) return SystemError(errno, StrCat("lstat \"", path, "\""));
  listener.device_ = info.st_dev;
  listener.inode_ = info.st_ino;
  if (::listen(listener.fd(), SOMAXCONN) != 0) return SystemError(errno, "listen");
  return listener;
}

UnixListener::~UnixListener() {
  if (!fd_ || ::getpid() != owner_) return;
  // Before the listener closes: while it is alive, no other gateway takes the path.
  struct stat info;
  if (::lstat(path_.c_str(), &info) == 0 && info.st_dev == device_ && info.st_ino == inode_) {
    ::unlink(path_.c_str());
  }
}

std::optional<ucred> PeerCredentials(int socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return peer;
}

UniqueFd OpenPeerPidfd(int socket) {
  int fd = -1;
  socklen_t size = sizeof(fd);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0) return UniqueFd(fd);
  // By number. Should the number have been given to another process meanwhile, then the peer died
  // before it was welcomed: it holds no claims that watching the wrong process could lose.
  const std::optional<ucred> peer = PeerCredentials(socket);
  if (!peer || peer->pid <= 0) {
    errno = ESRCH;
    return UniqueFd();
  }
  // Not by <sys/pidfd.h>, which C++ cannot link with in glibc 2.36.
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, peer->pid, 0)));
}

bool SeesPeersOfAnyPidNamespace() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  const UniqueFd one(ends[0]), other(ends[1]);
  int fd = -1;
  socklen_t size = sizeof(fd);
  if (::getsockopt(one.get(), SOL_SOCKET, SO_PEERPIDFD, &fd, &size) != 0) return false;
  UniqueFd().Reset(fd);
  return true;
}

absl::StatusOr<UniqueFd> ConnectUnix(const std::string& path) {
  if (absl::Status s = CheckSocketPath(path); !s.ok()) return s;
  UniqueFd fd = NewSocket();
  if (!fd) return SystemError(errno, "socket");
  const int error = Connect(fd.get(), path);
  const auto failed = [&](Reason reason, std::string_view why) {
    return MakeError(reason, StrCat("local socket \"", path, "\": ", why));
  };
  switch (error) {
    case 0:
      return fd;
    case ENOENT:
    case ENOTDIR:
      return failed(Reason::kUnreachable, "does not exist; the gateway has ended");
    case ECONNREFUSED:
      return failed(Reason::kUnreachable, "nobody listens; the gateway has ended");
    case EAGAIN:
      return failed(Reason::kBusy, "the gateway does not accept connections");
    case EACCES:
    case EPERM:
      return failed(Reason::kUidMismatch,
                    "belongs to another user; run gateway and worker as the same one");
    case EPROTOTYPE:
    case ENOTSOCK:
      return failed(Reason::kBadAddress, "is not a socket of our kind");
    default:
      return SystemError(error, StrCat("connect to local socket \"", path, "\""));
  }
}

bool SendWithFds(int socket, std::span<const std::byte> packet, std::initializer_list<int> fds) {
  iovec part = {.iov_base = const_cast<std::byte*>(packet.data()), .iov_len = packet.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFds)] = {};
  if (fds.size() > 0) {
    const size_t bytes = sizeof(int) * fds.size();
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(header), fds.begin(), bytes);
  }
  ssize_t n;
  do {
    n = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  return n == static_cast<ssize_t>(packet.size());
}

absl::StatusOr<std::optional<ReceivedPacket>> ReceiveWithFds(int socket,
                                                             std::span<std::byte> buffer) {
  iovec part = {.iov_base = buffer.data(), .iov_len = buffer.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFds)];
  message.msg_control = control;
  message.msg_controllen = CMSG_LEN(sizeof(int) * kMaxFds);  // without the padding, room for no 4th
  ssize_t n;
  do {
    n = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::nullopt;
    return MakeError(Reason::kPeerClosed, StrCat("recvmsg: ", std::strerror(errno)));
  }
  ReceivedPacket packet;
  packet.size = static_cast<size_t>(n);
  for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
    if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(fd));
      packet.fds.emplace_back(fd);
    }
  }
  if ((message.msg_flags & MSG_TRUNC) != 0) {
    return MakeError(Reason::kProtocol, StrCat("a packet of more than ", buffer.size(), " bytes"));
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    // The kernel stops handing over descriptors when the process has no room for more.
    if (packet.fds.size() < kMaxFds) {
      return MakeError(Reason::kNoMemory,
                       "no room for the gateway's three descriptors; raise the limit on open files"
                       " (RLIMIT_NOFILE)");
    }
    return MakeError(Reason::kProtocol, StrCat("more than ", kMaxFds, " descriptors in a packet"));
  }
  return packet;
}

}  // namespace tensorferry::engine
