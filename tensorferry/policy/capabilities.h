// What a worker can take, as it says itself (tensorferry.v1.Transport/GetCapabilities).
//
//   Capabilities worker = ...;                     // CapabilityClient asks, DescribeWorker fills
//   DecideLanes({policy, gateway, worker, tensor});
//
// The default is what may be assumed of a worker that says nothing: bytes in the message.
// Thread-safety: a value.
#ifndef TENSORFERRY_POLICY_CAPABILITIES_H_
#define TENSORFERRY_POLICY_CAPABILITIES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tensorferry/base/clock.h"
#include "tensorferry/base/host.h"
#include "tensorferry/policy/lane.h"

namespace tensorferry {

struct Capabilities {
  std::vector<Lane> lanes = {Lane::kInline};
  std::vector<std::string> transports = {"grpc"};
  // Largest tensor that fits its landing memory.
  uint64_t landing_bytes = 0;
  // Largest message that its gRPC server takes. 0: no limit, or not known.
  uint64_t max_inline_bytes = 0;
  HostIdentity host = {};
  // Of our own descriptor (wire/descriptor.h).
  std::vector<uint32_t> descriptor_versions = {};
  // 16 random bytes per process, empty for stock workers. Every response echoes it, so that a
  // restart is noticed.
  std::string instance_id = {};
  std::string version = {};
  // The longest that it waits for landing memory and then reads a tensor. None: it does not say.
  std::optional<Duration> hold = {};
  // Transports that it was told to offer and could not, each with why.
  std::map<std::string, std::string> unavailable = {};
  // RDMA devices of its host with an active port ("mlx5_0:1"), where it looks for them.
  std::vector<std::string> rdma_devices = {};

  // A worker that does not know our service.
  bool stock() const { return instance_id.empty(); }

  friend bool operator==(const Capabilities&, const Capabilities&) = default;
};

}  // namespace tensorferry

#endif  // TENSORFERRY_POLICY_CAPABILITIES_H_
