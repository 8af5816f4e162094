// What is known of a worker: found out here, or written down in a file.
//
//   absl::StatusOr<SocketAddress> address = Resolve("worker-3:50051", "--worker");
//   Capabilities known = WithListeningUid(*capabilities, *address);     // of a stock one
//   absl::StatusOr<WorkerInfo> info = ParseWorkerInfo(R"({"lanes": ["inline", "remote"]})");
//
// The keys of the JSON object are those of Capabilities that decide, each may be left out: "lanes",
// "transports", "landing_bytes", "max_inline_bytes", "descriptor_versions", "instance_id",
// "version", and "host" with "boot_id", "uid" and "shm_namespace". A worker with
// descriptor_versions or an instance_id is one of ours, any other a stock one.
// "multimodal_tensor_transport" and "multimodal_shm_min_bytes" are what SMG's worker specification
// sets for it. Other keys are refused.
// Thread-safety: Resolve may wait for a name server.
#ifndef TENSORFERRY_TOOLS_WORKER_FACTS_H_
#define TENSORFERRY_TOOLS_WORKER_FACTS_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tensorferry/base/net.h"
#include "tensorferry/policy/capabilities.h"
#include "tensorferry/policy/settings.h"

namespace tensorferry::tools {

// The first address of HOST:PORT; here names are resolved, which the library never does.
// kBadAddress, naming `flag`.
absl::StatusOr<SocketAddress> Resolve(const std::string& text, std::string_view flag);

// With the user who listens at `address`, if that is on this host.
Capabilities WithListeningUid(Capabilities worker, const SocketAddress& address);

struct WorkerInfo {
  Capabilities capabilities = {};
  WorkerOverrides overrides = {};
};

// kBadOption, naming the key.
absl::StatusOr<WorkerInfo> ParseWorkerInfo(std::string_view json);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_WORKER_FACTS_H_
