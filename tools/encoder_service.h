// The worker's side of TokenSpeed's Encode: receives each tensor of a request, hashes it, saves it
// if asked to, and answers with what it got.
//
//   EncoderService service({.receiver = &receiver, .transport = &transport, .queue = &queue,
//                           .on_tensor = print});
//   builder.RegisterService(&service);
//
// Thread-safety: gRPC calls it from its own threads; nothing in it blocks them.
// Ownership: what the options point to outlives the service, and the service its server.
#ifndef TENSORFERRY_TOOLS_ENCODER_SERVICE_H_
#define TENSORFERRY_TOOLS_ENCODER_SERVICE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "smg/tokenspeed_encoder.grpc.pb.h"
#include "tensorferry/grpc/transport_service.h"
#include "tensorferry/worker/receiver.h"
#include "tools/sha256.h"
#include "tools/work_queue.h"

namespace tensorferry::tools {

// A tensor that has arrived; `tensor` is only readable during the call.
struct ReceivedTensor {
  std::string request_id;
  const Tensor* tensor = nullptr;
  Sha256Digest sha256 = {};
  Duration took = {};  // from the request's arrival
};

struct EncoderServiceOptions {
  const Receiver* receiver = nullptr;
  const TransportService* transport = nullptr;
  WorkQueue* queue = nullptr;
  // The longest that a tensor is waited for.
  Duration pull_limit = std::chrono::seconds(60);
  // An error fails the request. From any thread of the queue.
  std::function<absl::Status(const ReceivedTensor&)> on_tensor = {};
  // A tensor that did not arrive.
  std::function<void(const std::string& request_id, const absl::Status&)> on_failure = {};
};

class EncoderService final : public tokenspeed::grpc::encoder::TokenSpeedEncoder::CallbackService {
 public:
  explicit EncoderService(EncoderServiceOptions options) : options_(std::move(options)) {}

  grpc::ServerUnaryReactor* Encode(grpc::CallbackServerContext* context,
                                   const tokenspeed::grpc::encoder::EncodeRequest* request,
                                   tokenspeed::grpc::encoder::EncodeResponse* response) override;

 private:
  const EncoderServiceOptions options_;
};

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_ENCODER_SERVICE_H_
