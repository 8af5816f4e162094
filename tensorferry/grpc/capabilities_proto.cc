#include "tensorferry/grpc/capabilities_proto.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "tensorferry/policy/setting_values.h"

namespace tensorferry {

v1::Capabilities ToProto(const Capabilities& capabilities) {
  v1::Capabilities out;
  out.set_version(capabilities.version);
  out.set_instance_id(capabilities.instance_id);
  for (const Lane lane : capabilities.lanes) out.add_lanes(std::string(LaneName(lane)));
  for (const std::string& transport : capabilities.transports) out.add_transports(transport);
  out.set_landing_bytes(capabilities.landing_bytes);
  out.set_max_inline_bytes(capabilities.max_inline_bytes);
  const HostIdentity& host = capabilities.host;
  if (host.boot_id != BootId{}) {
    out.mutable_shm()->set_boot_id(host.boot_id.data(), host.boot_id.size());
  }
  if (!host.shm_namespace.empty()) {
    out.mutable_shm()->set_namespace_token(host.shm_namespace);
  }
  if (host.uid) out.set_uid(*host.uid);
  for (const uint32_t version : capabilities.descriptor_versions) {
    out.add_descriptor_versions(version);
  }
  if (capabilities.hold) {
    const auto hold = std::chrono::ceil<std::chrono::seconds>(*capabilities.hold);
    out.set_hold_s(static_cast<uint64_t>(hold.count()));
  }
  if (host.pid_namespace != 0) out.set_pid_namespace(host.pid_namespace);
  if (host.user_namespace != 0) out.set_user_namespace(host.user_namespace);
  out.mutable_unavailable()->insert(capabilities.unavailable.begin(),
                                    capabilities.unavailable.end());
  out.mutable_rdma_devices()->Assign(capabilities.rdma_devices.begin(),
                                     capabilities.rdma_devices.end());
  return out;
}

Capabilities FromProto(const v1::Capabilities& message) {
  Capabilities out;
  out.version = message.version();
  out.instance_id = message.instance_id();
  if (message.lanes_size() > 0) out.lanes.clear();
  for (const std::string& name : message.lanes()) {
    if (const auto lane = ParseLane(name); lane.ok()) out.lanes.push_back(*lane);
  }
  if (message.transports_size() > 0) {
    out.transports.assign(message.transports().begin(), message.transports().end());
  }
  out.landing_bytes = message.landing_bytes();
  out.max_inline_bytes = message.max_inline_bytes();
  if (const std::string& id = message.shm().boot_id(); id.size() == out.host.boot_id.size()) {
    std::copy(id.begin(), id.end(), out.host.boot_id.begin());
  }
  out.host.shm_namespace = message.shm().namespace_token();
  if (message.has_uid()) out.host.uid = message.uid();
  out.descriptor_versions.assign(message.descriptor_versions().begin(),
                                 message.descriptor_versions().end());
  if (message.has_hold_s()) out.hold = SecondsCapped(message.hold_s());
  out.host.pid_namespace = message.pid_namespace();
  out.host.user_namespace = message.user_namespace();
  out.unavailable.insert(message.unavailable().begin(), message.unavailable().end());
  out.rdma_devices.assign(message.rdma_devices().begin(), message.rdma_devices().end());
  return out;
}

}  // namespace tensorferry
