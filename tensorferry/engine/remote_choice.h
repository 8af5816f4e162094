// Which of the built-in engines of lane `remote` two ends use: ucx where both have an RDMA device,
// else tcp, which is faster than UCX over the same sockets and safer.
//
//   std::vector<std::string> devices = ActiveRdmaDevices("/sys/class/infiniband");   // {"mlx5_0:1"}
//   RemoteChoice c = ChooseRemote(gateway, {.tcp = true, .ucx = true, .rdma = !devices.empty()});
//   c.transport;                                             // "tcp", "ucx", or empty: neither
//
// An end says that it has RDMA by naming ucx before tcp: a gateway in the ways of its descriptors, a
// worker in the transports of its capabilities. RemoteEndOf reads that.
// Thread-safety: pure functions, but that ActiveRdmaDevices looks into a folder.
#ifndef TENSORFERRY_ENGINE_REMOTE_CHOICE_H_
#define TENSORFERRY_ENGINE_REMOTE_CHOICE_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensorferry/base/export.h"

namespace tensorferry::engine {

struct RemoteEnd {
  bool tcp = false;
  bool ucx = false;
  bool rdma = false;
};

struct RemoteChoice {
  std::string_view transport = {};
  std::string why = {};  // one line, for people
};

// Of the names of transports, the end's favourite first.
TENSORFERRY_EXPORT RemoteEnd RemoteEndOf(std::span<const std::string> transports);
TENSORFERRY_EXPORT RemoteChoice ChooseRemote(const RemoteEnd& gateway, const RemoteEnd& worker);

// The devices with a port that carries, as UCX names them, in order; none where `folder`
// (/sys/class/infiniband) is not there.
TENSORFERRY_EXPORT std::vector<std::string> ActiveRdmaDevices(const std::string& folder);

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_REMOTE_CHOICE_H_
