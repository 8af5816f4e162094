// The worker's side of TokenSpeed's Encode: receives the tensors of an item, and answers with what
// it got.
//
//   EncoderService service(&engine);
//   builder.RegisterService(&service);
//
// Thread-safety: gRPC calls it from its own threads; nothing in it blocks them.
// Ownership: the engine outlives the service, and the service its server.
#ifndef TENSORFERRY_TOOLS_SERVE_ENCODER_SERVICE_H_
#define TENSORFERRY_TOOLS_SERVE_ENCODER_SERVICE_H_

#include "smg/tokenspeed_encoder.grpc.pb.h"
#include "tools/serve/engine.h"

namespace tensorferry::tools {

class EncoderService final : public tokenspeed::grpc::encoder::TokenSpeedEncoder::CallbackService {
 public:
  explicit EncoderService(Engine* engine) : engine_(engine) {}

  grpc::ServerUnaryReactor* Encode(grpc::CallbackServerContext* context,
                                   const tokenspeed::grpc::encoder::EncodeRequest* request,
                                   tokenspeed::grpc::encoder::EncodeResponse* response) override;

 private:
  Engine* const engine_;
};

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_SERVE_ENCODER_SERVICE_H_
