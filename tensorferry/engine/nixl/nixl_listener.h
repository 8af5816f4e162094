// Answers NIXL agents that ask for our metadata: the gateway's end of the handshake.
//
//   auto listener = NixlListener::Create(*SocketAddress::Parse("10.0.0.5:18515"));
//   while (...) { listener->AddWaits(&waits); poll(waits); listener->Step(metadata); }
//
// NIXL's own listener binds every interface, leaks a descriptor per orderly close and lets anyone
// push metadata. This one listens where it is told, answers, and takes no metadata: a READ with its
// notification needs none of the reader. Stock pullers keep their connections open, so those are
// only closed when too many are.
// Thread-safety: one thread at a time.
#ifndef TENSORFERRY_ENGINE_NIXL_NIXL_LISTENER_H_
#define TENSORFERRY_ENGINE_NIXL_NIXL_LISTENER_H_

#include <poll.h>

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/base/net.h"
#include "tensorferry/wire/nixl_messages.h"

namespace tensorferry::engine {

class NixlListener {
 public:
  // Port 0 picks one. kAddressInUse, kBadAddress.
  static absl::StatusOr<std::unique_ptr<NixlListener>> Create(const SocketAddress& address);

  const SocketAddress& address() const { return address_; }
  void AddWaits(std::vector<pollfd>* waits) const;
  // Accepts, reads and answers what there is. Empty metadata: there is no agent now, so that who
  // asks waits.
  void Step(std::string_view metadata);
  uint64_t answered() const { return answered_; }
  size_t connections() const { return connections_.size(); }

 private:
  struct Connection {
    UniqueFd socket;
    wire::NixlMessageReader reader;
    uint64_t unanswered = 0;
    std::string unsent;
  };

  NixlListener(UniqueFd socket, const SocketAddress& address)
      : socket_(std::move(socket)), address_(address) {}
  void Accept();
  // False when it is over.
  bool Serve(Connection& connection, std::string_view metadata);

  UniqueFd socket_;
  SocketAddress address_;
  std::list<Connection> connections_;  // the one that was heard last is last
  uint64_t answered_ = 0;
};

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_NIXL_NIXL_LISTENER_H_
