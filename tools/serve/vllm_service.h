// A worker that answers as vLLM's engine does: receives the tensors of a Generate, and gives fixed
// tokens.
//
//   VllmService service(&engine);
//   builder.RegisterService(&service);
//
// Thread-safety: gRPC calls it from its own threads; nothing in it blocks them.
// Ownership: the engine outlives the service, and the service its server.
#ifndef TENSORFERRY_TOOLS_SERVE_VLLM_SERVICE_H_
#define TENSORFERRY_TOOLS_SERVE_VLLM_SERVICE_H_

#include "smg/vllm_engine.grpc.pb.h"
#include "tools/serve/engine.h"

namespace tensorferry::tools {

class VllmService final : public vllm::grpc::engine::VllmEngine::CallbackService {
 public:
  explicit VllmService(Engine* engine) : engine_(engine) {}

  grpc::ServerWriteReactor<vllm::grpc::engine::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context,
      const vllm::grpc::engine::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context,
                                  const vllm::grpc::engine::AbortRequest* request,
                                  vllm::grpc::engine::AbortResponse* response) override;
  grpc::ServerUnaryReactor* HealthCheck(grpc::CallbackServerContext* context,
                                        const vllm::grpc::engine::HealthCheckRequest* request,
                                        vllm::grpc::engine::HealthCheckResponse* response) override;
  grpc::ServerUnaryReactor* GetModelInfo(
      grpc::CallbackServerContext* context, const vllm::grpc::engine::GetModelInfoRequest* request,
      vllm::grpc::engine::GetModelInfoResponse* response) override;
  grpc::ServerUnaryReactor* GetServerInfo(
      grpc::CallbackServerContext* context, const vllm::grpc::engine::GetServerInfoRequest* request,
      vllm::grpc::engine::GetServerInfoResponse* response) override;

 private:
  Engine* const engine_;
};

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_SERVE_VLLM_SERVICE_H_
