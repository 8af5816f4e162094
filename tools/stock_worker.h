// What a stock worker says of itself, where it can: which /dev/shm it sees.
//
//   if (capabilities.stock()) capabilities = WithServerInfo(std::move(capabilities), channel, 5s);
//
// SMG's TokenSpeed and vLLM workers answer GetServerInfo, an encoder alone may answer neither. What
// cannot be had is left out: lane shm then needs the operator's word.
// Thread-safety: from any thread; waits for the worker.
#ifndef TENSORFERRY_TOOLS_STOCK_WORKER_H_
#define TENSORFERRY_TOOLS_STOCK_WORKER_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/net.h"
#include "tensorferry/policy/capabilities.h"

namespace tensorferry::tools {

// What the worker at `to`, an address of HOST:PORT, says of itself, and what can be found out of a
// stock one. kUnreachable when it does not answer.
absl::StatusOr<Capabilities> AskWorker(const std::string& to, const SocketAddress& address,
                                       Duration timeout);

Capabilities WithServerInfo(Capabilities worker, const std::shared_ptr<grpc::Channel>& channel,
                            Duration timeout);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_STOCK_WORKER_H_
