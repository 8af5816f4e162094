// The worker that `tensorferry doctor --peer` is asked about: whether it answers, and what it says.
//
//   const Peer peer = AskPeer("10.0.0.7:50051", 5s);
//   if (!peer.worker.ok()) ... peer.evidence ...    // "10.0.0.7:50051 refuses connections"
//
// Thread-safety: none; waits for the peer, and for a name server.
#ifndef TENSORFERRY_TOOLS_DOCTOR_PEER_H_
#define TENSORFERRY_TOOLS_DOCTOR_PEER_H_

#include <string>

#include "absl/status/statusor.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/policy/capabilities.h"

namespace tensorferry::tools {

struct Peer {
  absl::StatusOr<Capabilities> worker;
  std::string evidence = {};  // what became of a connection to it
  std::string fix = {};       // empty when it answers
};

Peer AskPeer(const std::string& address, Duration timeout);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_DOCTOR_PEER_H_
