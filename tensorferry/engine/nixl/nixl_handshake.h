// Fetches a gateway's NIXL metadata over a TCP connection of our own, without blocking: NIXL's own
// exchange knows neither errors, deadlines nor IPv6.
//
//   NixlHandshake handshake(address, deadline);
//   while (!handshake.Step(now)) poll({handshake.fd(), handshake.events()}, handshake.deadline());
//   absl::StatusOr<std::string> metadata = handshake.TakeResult();
//
// The connection is reset, not closed in order: a stock listener leaks a descriptor with every
// orderly end.
// Thread-safety: one thread at a time.
#ifndef TENSORFERRY_ENGINE_NIXL_NIXL_HANDSHAKE_H_
#define TENSORFERRY_ENGINE_NIXL_NIXL_HANDSHAKE_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/base/net.h"
#include "tensorferry/wire/nixl_messages.h"

namespace tensorferry::engine {

class NixlHandshake {
 public:
  NixlHandshake(const SocketAddress& gateway, Instant deadline);
  NixlHandshake(const NixlHandshake&) = delete;
  NixlHandshake& operator=(const NixlHandshake&) = delete;

  // True once the result is there.
  bool Step(Instant now);
  // What to poll for; -1 once done.
  int fd() const { return socket_.get(); }
  short events() const;
  Instant deadline() const { return deadline_; }
  // Once, when done: kUnreachable, kTimedOut, kPeerClosed, kProtocol.
  absl::StatusOr<std::string> TakeResult();

 private:
  bool Finish(absl::StatusOr<std::string> result);
  bool Receive();

  const SocketAddress gateway_;
  const Instant deadline_;
  UniqueFd socket_;
  bool connected_ = false;
  std::string unsent_;
  wire::NixlMessageReader reader_;
  std::optional<absl::StatusOr<std::string>> result_;
};

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_NIXL_NIXL_HANDSHAKE_H_
