// The yardstick for engine/tcp: the least that two processes can do to move bytes over plain
// sockets.
//
//   auto server = BareSocketServer::Create("127.0.0.1", memory, true);           // one process
//   auto client = BareSocketClient::Connect(address, 2, true);                   // the other: two
//   client->Pull(offset, buffer);                                 // connections, each takes a part
//
// A request is {offset u64, length u64}, the answer the bytes: no lease, no token, no check of any
// kind, one thread on each side, which spins (base/spin.h) and then sleeps in poll, or only sleeps.
// Thread-safety: the server has a thread of its own; a client is used by one.
// Ownership: the memory outlives the server.
#ifndef TENSORFERRY_TOOLS_BENCH_BARE_SOCKETS_H_
#define TENSORFERRY_TOOLS_BENCH_BARE_SOCKETS_H_

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/base/net.h"
#include "tensorferry/base/spin.h"
#include "tensorferry/engine/tcp_socket.h"

namespace tensorferry::tools::bench {

class BareSocketServer {
 public:
  static absl::StatusOr<std::unique_ptr<BareSocketServer>> Create(const std::string& host,
                                                                  std::span<const std::byte> memory,
                                                                  bool spins);
  ~BareSocketServer();
  BareSocketServer(const BareSocketServer&) = delete;
  BareSocketServer& operator=(const BareSocketServer&) = delete;

  const SocketAddress& address() const { return listener_.address; }

 private:
  explicit BareSocketServer(engine::TcpListener listener) : listener_(std::move(listener)) {}
  void Serve(std::span<const std::byte> memory, bool spins) const;

  const engine::TcpListener listener_;
  UniqueFd stop_;
  std::thread thread_;
};

class BareSocketClient {
 public:
  static absl::StatusOr<std::unique_ptr<BareSocketClient>> Connect(const SocketAddress& server,
                                                                   size_t connections, bool spins);
  // kPeerClosed.
  absl::Status Pull(uint64_t offset, std::span<std::byte> into);

 private:
  explicit BareSocketClient(bool spins) : spins_(spins) {}
  const bool spins_;
  Spin spin_;
  std::vector<UniqueFd> fds_;
  std::vector<pollfd> sockets_;
};

}  // namespace tensorferry::tools::bench

#endif  // TENSORFERRY_TOOLS_BENCH_BARE_SOCKETS_H_
