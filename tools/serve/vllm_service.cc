#include "tools/serve/vllm_service.h"

#include "tools/serve/generate_call.h"

namespace tensorferry::tools {
namespace {

namespace pb = vllm::grpc::engine;

struct Vllm {
  using Request = pb::GenerateRequest;
  using Response = pb::GenerateResponse;

  static absl::Status AddTensors(const Request& request, Intake* intake) {
    if (request.has_media_refs()) {
      return absl::UnimplementedError(
          "media_refs: this worker takes tensors, and fetches no pictures");
    }
    size_t item = 0;
    if (request.has_mm_inputs()) AddItem(request.mm_inputs(), item++, intake);
    for (const pb::MultimodalInputs& inputs : request.extra_mm_inputs()) {
      AddItem(inputs, item++, intake);
    }
    return absl::OkStatus();
  }
  static uint32_t PromptTokens(const Request& request) {
    return static_cast<uint32_t>(request.tokenized().input_ids_size());
  }
  static std::optional<uint32_t> MostTokens(const Request& request) {
    const pb::SamplingParams& sampling = request.sampling_params();
    return sampling.has_max_tokens() ? std::optional(sampling.max_tokens()) : std::nullopt;
  }
  static void Address(const Request&, Response*) {}

 private:
  // A worker that only decodes gets side tensors alone.
  static void AddItem(const pb::MultimodalInputs& inputs, size_t item, Intake* intake) {
    if (inputs.has_pixel_values()) {
      intake->Add({.name = "pixel_values", .item = item}, inputs.pixel_values());
    }
    intake->AddSides(item, inputs.model_specific_tensors());
  }
};

}  // namespace

grpc::ServerWriteReactor<pb::GenerateResponse>* VllmService::Generate(
    grpc::CallbackServerContext* context, const pb::GenerateRequest* request) {
  return GenerateCall<Vllm>::Begin(engine_, context, request);
}

grpc::ServerUnaryReactor* VllmService::Abort(grpc::CallbackServerContext* context,
                                             const pb::AbortRequest* request, pb::AbortResponse*) {
  for (const std::string& id : request->request_ids()) engine_->running.Stop(id);
  return Answer(context);
}

grpc::ServerUnaryReactor* VllmService::HealthCheck(grpc::CallbackServerContext* context,
                                                   const pb::HealthCheckRequest*,
                                                   pb::HealthCheckResponse* response) {
  response->set_healthy(true);
  return Answer(context);
}

grpc::ServerUnaryReactor* VllmService::GetModelInfo(grpc::CallbackServerContext* context,
                                                    const pb::GetModelInfoRequest*,
                                                    pb::GetModelInfoResponse* response) {
  response->set_model_path(engine_->model.path);
  response->set_tokenizer_path(engine_->model.path);
  response->set_served_model_name(engine_->model.served_name);
  response->set_is_generation(true);
  response->set_supports_vision(true);
  return Answer(context);
}

grpc::ServerUnaryReactor* VllmService::GetServerInfo(grpc::CallbackServerContext* context,
                                                     const pb::GetServerInfoRequest*,
                                                     pb::GetServerInfoResponse* response) {
  response->set_active_requests(static_cast<uint32_t>(engine_->running.size()));
  response->set_uptime_seconds(engine_->uptime_seconds());
  response->set_server_type("tensorferry");
  response->set_shm_namespace_id(engine_->shm_namespace);
  response->set_multimodal_encoder_dtype(engine_->model.encoder_dtype);
  return Answer(context);
}

}  // namespace tensorferry::tools
