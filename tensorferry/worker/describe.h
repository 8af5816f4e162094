// What this worker tells gateways about itself.
//
//   TransportService service(DescribeWorker(puller.get(), kMaxMessageBytes));
//
// Call it once per process: each call makes up another instance id. What only the program knows
// (Capabilities::hold, ::unavailable, ::rdma_devices) it fills in itself; `tensorferry doctor` shows it.
//
// Thread-safety: from any thread.
#ifndef TENSORFERRY_WORKER_DESCRIBE_H_
#define TENSORFERRY_WORKER_DESCRIBE_H_

#include <cstdint>

#include "tensorferry/base/export.h"
#include "tensorferry/policy/capabilities.h"
#include "tensorferry/puller/puller.h"

namespace tensorferry {

// `puller` may be null: inline only. `max_message_bytes`: what its gRPC server accepts, 0 for no
// limit.
TENSORFERRY_EXPORT Capabilities DescribeWorker(const Puller* puller, uint64_t max_message_bytes);

}  // namespace tensorferry

#endif  // TENSORFERRY_WORKER_DESCRIBE_H_
