// The yardstick for engine/tcp: the least that two processes can do to move bytes over plain
// sockets.
//
//   ServeBareSockets(listener, bytes);                    // one process, for ever
//   BareSocketClient client(address, 2);                  // the other: two connections, each takes
//   a part client.Pull(offset, buffer);
//
// A request is {offset u64, length u64}, the answer the bytes: no lease, no token, no error, one
// thread on each side, which spins on poll for 100 µs and then sleeps in it. Any failure ends the
// process.
#ifndef TENSORFERRY_BENCH_BARE_SOCKETS_H_
#define TENSORFERRY_BENCH_BARE_SOCKETS_H_

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tensorferry/base/net.h"

namespace tensorferry::bench {

[[noreturn]] void ServeBareSockets(int listener, std::span<const std::byte> bytes);

class BareSocketClient {
 public:
  BareSocketClient(const SocketAddress& server, int connections);
  ~BareSocketClient();
  BareSocketClient(const BareSocketClient&) = delete;
  BareSocketClient& operator=(const BareSocketClient&) = delete;

  void Pull(uint64_t offset, std::span<std::byte> into);

 private:
  std::vector<pollfd> sockets_;
};

}  // namespace tensorferry::bench

#endif  // TENSORFERRY_BENCH_BARE_SOCKETS_H_
