#include "tools/stock_worker.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>

#include <chrono>
#include <string>
#include <utility>

#include "smg/tokenspeed_scheduler.grpc.pb.h"
#include "smg/vllm_engine.grpc.pb.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/grpc/capability_client.h"
#include "tools/worker_facts.h"

namespace tensorferry::tools {
namespace {

std::string ShmNamespaceOf(const tokenspeed::grpc::scheduler::GetServerInfoResponse& info) {
  const auto& fields = info.scheduler_info().fields();
  const auto at = fields.find("shm_namespace_id");
  return at == fields.end() ? std::string() : at->second.string_value();
}

std::string ShmNamespaceOf(const vllm::grpc::engine::GetServerInfoResponse& info) {
  return info.shm_namespace_id();
}

// False when the worker is no such.
template <class Service, class Request, class Response>
bool Ask(const std::shared_ptr<grpc::Channel>& channel, Duration timeout, Capabilities* worker) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::duration_cast<std::chrono::system_clock::duration>(timeout));
  Response response;
  const grpc::Status status =
      Service::NewStub(channel)->GetServerInfo(&context, Request(), &response);
  if (status.ok()) worker->host.shm_namespace = ShmNamespaceOf(response);
  return status.error_code() != grpc::StatusCode::UNIMPLEMENTED;
}

}  // namespace

absl::StatusOr<Capabilities> AskWorker(const std::string& to, const SocketAddress& address,
                                       Duration timeout) {
  const std::shared_ptr<grpc::Channel> channel =
      grpc::CreateChannel(to, grpc::InsecureChannelCredentials());
  CapabilityClient client(channel, {.timeout = timeout});
  const CapabilityClient::Result worker = client.Get();
  if (!worker.ok()) {
    return MakeError(Reason::kUnreachable,
                     StrCat("no worker answers at ", to, ": ", worker.status().message()));
  }
  if (!(*worker)->stock()) return **worker;
  return WithListeningUid(WithServerInfo(**worker, channel, timeout), address);
}

Capabilities WithServerInfo(Capabilities worker, const std::shared_ptr<grpc::Channel>& channel,
                            Duration timeout) {
  namespace ts = tokenspeed::grpc::scheduler;
  namespace vl = vllm::grpc::engine;
  if (!Ask<ts::TokenSpeedScheduler, ts::GetServerInfoRequest, ts::GetServerInfoResponse>(
          channel, timeout, &worker)) {
    Ask<vl::VllmEngine, vl::GetServerInfoRequest, vl::GetServerInfoResponse>(channel, timeout,
                                                                             &worker);
  }
  return worker;
}

}  // namespace tensorferry::tools
