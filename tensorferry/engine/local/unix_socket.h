// The unix socket between gateway and worker: a file that only its owner can connect to, packets
// that keep their boundaries, and file descriptors that travel along.
//
//   auto listener = UnixListener::Listen("/run/gateway/tensorferry.sock");     // gateway
//   UniqueFd peer = AcceptUnix(listener->fd());
//   SendWithFds(peer.get(), welcome, {arena_fd, table_fd, board_fd});
//
//   auto socket = ConnectUnix("/run/gateway/tensorferry.sock");                // worker
//   auto packet = ReceiveWithFds(socket->get(), buffer);
//
// Everything is non-blocking and close-on-exec.
// Thread-safety: functions from any thread, on different descriptors.
// Ownership: a UnixListener removes its file when destroyed, if the file is still the one that it
// made.
#ifndef TENSORFERRY_ENGINE_LOCAL_UNIX_SOCKET_H_
#define TENSORFERRY_ENGINE_LOCAL_UNIX_SOCKET_H_

#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/base/export.h"
#include "tensorferry/base/fd.h"

namespace tensorferry::engine {

inline constexpr size_t kMaxSocketPathBytes = 107;

// kBadAddress unless the path is absolute, has no NUL and fits a socket address.
absl::Status CheckSocketPath(const std::string& path);

class UnixListener {
 public:
  // Makes the file with mode 0600. A stale file, whose listener is gone, is replaced; a live one is
  // kAddressInUse; something else than a socket, or no directory to put it in, is kBadAddress.
  static absl::StatusOr<UnixListener> Listen(const std::string& path);
  UnixListener(UnixListener&& other) noexcept = default;
  UnixListener& operator=(UnixListener&&) = delete;
  ~UnixListener();

  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }

 private:
  UnixListener(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  std::string path_;
  UniqueFd fd_;
  pid_t owner_ = ::getpid();  // a forked child leaves the file alone
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// A descriptor that is readable once the process at the other end has died. Empty, with errno, when
// that process cannot be seen from here (another pid namespace) or has gone.
UniqueFd OpenPeerPidfd(int socket);
// Whether it sees processes of any pid namespace: from Linux 6.5 on.
TENSORFERRY_EXPORT bool SeesPeersOfAnyPidNamespace();
// Who called connect(), or listen() for the connecting side. Empty when the kernel does not say.
std::optional<ucred> PeerCredentials(int socket);

// kUnreachable: nobody listens there; kUidMismatch: the file's mode forbids it; kBusy: the queue of
// the listener is full, try again soon; kBadAddress: it is not a socket of our kind.
absl::StatusOr<UniqueFd> ConnectUnix(const std::string& path);

// One packet. False when the peer is gone or does not read (errno says which).
bool SendWithFds(int socket, std::span<const std::byte> packet, std::initializer_list<int> fds);

struct ReceivedPacket {
  size_t size = 0;  // 0: the peer has closed
  std::vector<UniqueFd> fds;
};
// Empty when there is none yet. kPeerClosed when the connection broke; kProtocol for a packet that
// does not fit `buffer` or carries more than three descriptors; kNoMemory when this process has no
// room for the descriptors.
absl::StatusOr<std::optional<ReceivedPacket>> ReceiveWithFds(int socket,
                                                             std::span<std::byte> buffer);

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_LOCAL_UNIX_SOCKET_H_
