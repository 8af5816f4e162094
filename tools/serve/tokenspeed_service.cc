#include "tools/serve/tokenspeed_service.h"

#include "tools/serve/generate_call.h"

namespace tensorferry::tools {
namespace {

namespace pb = tokenspeed::grpc::scheduler;

struct TokenSpeed {
  using Request = pb::GenerateRequest;
  using Response = pb::GenerateResponse;

  static absl::Status AddTensors(const Request& request, Intake* intake) {
    // Then the pixels may have gone to the encoder, or to the worker that prefills.
    const bool split = request.has_encode_bootstrap_info() || request.has_kv_bootstrap_info();
    size_t index = 0;
    for (const pb::MultimodalItem& item : request.mm_inputs().items()) {
      const pb::TensorData& main = item.encoder_input();
      if (!split || main.payload_case() != pb::TensorData::PAYLOAD_NOT_SET) {
        intake->Add({.name = "encoder_input", .item = index}, main);
      }
      intake->AddSides(index++, item.model_specific_tensors());
    }
    return absl::OkStatus();
  }
  static uint32_t PromptTokens(const Request& request) {
    return static_cast<uint32_t>(request.tokenized().input_ids_size());
  }
  static std::optional<uint32_t> MostTokens(const Request& request) {
    const pb::SamplingParams& sampling = request.sampling_params();
    return sampling.has_max_new_tokens() ? std::optional(sampling.max_new_tokens()) : std::nullopt;
  }
  static void Address(const Request& request, Response* response) {
    response->set_request_id(request.request_id());
  }
};

}  // namespace

grpc::ServerUnaryReactor* TokenSpeedInfoService::HealthCheck(grpc::CallbackServerContext* context,
                                                             const pb::HealthCheckRequest*,
                                                             pb::HealthCheckResponse* response) {
  response->set_healthy(true);
  return Answer(context);
}

grpc::ServerUnaryReactor* TokenSpeedInfoService::GetModelInfo(grpc::CallbackServerContext* context,
                                                              const pb::GetModelInfoRequest*,
                                                              pb::GetModelInfoResponse* response) {
  response->set_model_path(engine()->model.path);
  response->set_tokenizer_path(engine()->model.path);
  response->set_served_model_name(engine()->model.served_name);
  response->set_supports_vision(true);
  response->set_supports_multimodal(true);
  response->set_multimodal_encoder_dtype(engine()->model.encoder_dtype);
  return Answer(context);
}

grpc::ServerUnaryReactor* TokenSpeedInfoService::GetServerInfo(
    grpc::CallbackServerContext* context, const pb::GetServerInfoRequest*,
    pb::GetServerInfoResponse* response) {
  if (!engine()->shm_namespace.empty()) {
    (*response->mutable_scheduler_info()->mutable_fields())["shm_namespace_id"].set_string_value(
        engine()->shm_namespace);
  }
  response->set_active_requests(static_cast<int32_t>(engine()->running.size()));
  response->set_uptime_seconds(engine()->uptime_seconds());
  return Answer(context);
}

grpc::ServerWriteReactor<pb::GenerateResponse>* TokenSpeedService::Generate(
    grpc::CallbackServerContext* context, const pb::GenerateRequest* request) {
  return GenerateCall<TokenSpeed>::Begin(engine(), context, request);
}

grpc::ServerUnaryReactor* TokenSpeedService::Abort(grpc::CallbackServerContext* context,
                                                   const pb::AbortRequest* request,
                                                   pb::AbortResponse* response) {
  response->set_success(engine()->running.Stop(request->request_id()));
  return Answer(context);
}

}  // namespace tensorferry::tools
