// A worker that answers as TokenSpeed's scheduler does: receives the tensors of a Generate, and
// gives fixed tokens. Beside TokenSpeed's encoder gateways ask for the first part of it only.
//
//   TokenSpeedService service(&engine);
//   builder.RegisterService(&service);
//
// Thread-safety: gRPC calls it from its own threads; nothing in it blocks them.
// Ownership: the engine outlives the service, and the service its server.
#ifndef TENSORFERRY_TOOLS_SERVE_TOKENSPEED_SERVICE_H_
#define TENSORFERRY_TOOLS_SERVE_TOKENSPEED_SERVICE_H_

#include "smg/tokenspeed_scheduler.grpc.pb.h"
#include "tools/serve/engine.h"

namespace tensorferry::tools {

// What is asked of every worker of TokenSpeed's.
class TokenSpeedInfoService
    : public tokenspeed::grpc::scheduler::TokenSpeedScheduler::CallbackService {
 public:
  explicit TokenSpeedInfoService(Engine* engine) : engine_(engine) {}

  grpc::ServerUnaryReactor* HealthCheck(
      grpc::CallbackServerContext* context,
      const tokenspeed::grpc::scheduler::HealthCheckRequest* request,
      tokenspeed::grpc::scheduler::HealthCheckResponse* response) final;
  grpc::ServerUnaryReactor* GetModelInfo(
      grpc::CallbackServerContext* context,
      const tokenspeed::grpc::scheduler::GetModelInfoRequest* request,
      tokenspeed::grpc::scheduler::GetModelInfoResponse* response) final;
  grpc::ServerUnaryReactor* GetServerInfo(
      grpc::CallbackServerContext* context,
      const tokenspeed::grpc::scheduler::GetServerInfoRequest* request,
      tokenspeed::grpc::scheduler::GetServerInfoResponse* response) final;

 protected:
  Engine* engine() const { return engine_; }

 private:
  Engine* const engine_;
};

class TokenSpeedService final : public TokenSpeedInfoService {
 public:
  using TokenSpeedInfoService::TokenSpeedInfoService;

  grpc::ServerWriteReactor<tokenspeed::grpc::scheduler::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context,
      const tokenspeed::grpc::scheduler::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context,
                                  const tokenspeed::grpc::scheduler::AbortRequest* request,
                                  tokenspeed::grpc::scheduler::AbortResponse* response) override;
};

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_SERVE_TOKENSPEED_SERVICE_H_
