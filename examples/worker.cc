// The smallest worker: takes a tensor by every lane, and says what it got.
//
//   worker 127.0.0.1:50051          (port 0 picks a free one)
#include <grpcpp/grpcpp.h>

#include <iostream>

#include "smg/tokenspeed_encoder.grpc.pb.h"
#include "tensorferry/grpc/received.h"
#include "tensorferry/grpc/status.h"
#include "tensorferry/grpc/transport_service.h"
#include "tensorferry/puller/puller.h"
#include "tensorferry/worker/budget.h"
#include "tensorferry/worker/describe.h"
#include "tensorferry/worker/receiver.h"

namespace {

namespace tf = tensorferry;
using tokenspeed::grpc::encoder::EncodeRequest;
using tokenspeed::grpc::encoder::EncodeResponse;
using tokenspeed::grpc::encoder::TokenSpeedEncoder;

class Encoder final : public TokenSpeedEncoder::CallbackService {
 public:
  Encoder(const tf::Receiver* receiver, const tf::TransportService* transport)
      : receiver_(receiver), transport_(transport) {}

  grpc::ServerUnaryReactor* Encode(grpc::CallbackServerContext* context,
                                   const EncodeRequest* request,
                                   EncodeResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    transport_->EchoInstance(context);
    if (request->mm_inputs().items_size() != 1 || request->items_size() != 1) {
      reactor->Finish({grpc::StatusCode::INVALID_ARGUMENT, "send one item and its room"});
      return reactor;
    }
    const tf::PullOptions options = {.timeout = tf::PullBudget(tf::RemainingTime(*context)),
                                     .key = request->items(0).bootstrap_room()};
    receiver_->ReceiveAsync(request->mm_inputs().items(0).encoder_input(), options,
                            [=](absl::StatusOr<tf::Tensor> tensor) {
                              if (tensor.ok()) {
                                // Here tensor->bytes go to the engine.
                                tf::AddReceived(context,
                                                {.lane = tensor->lane,
                                                 .transport = std::string(tensor->transport),
                                                 .nbytes = tensor->bytes.size()});
                                response->set_accepted(true);
                              }
                              reactor->Finish(tf::FailWith(context, tensor.status()));
                            });
    return reactor;
  }

 private:
  const tf::Receiver* receiver_;
  const tf::TransportService* transport_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: worker HOST:PORT\n";
    return 2;
  }
  constexpr int kMaxMessageBytes = 256 << 20;

  // Memory for tensors from the network, and the gateways that may be asked for them.
  auto puller = tf::Puller::Create({.allow = tf::AllowList::Loopback(), .landing_bytes = 64 << 20});
  if (!puller.ok()) {
    std::cerr << puller.status() << "\n";
    return 1;
  }
  const tf::Receiver receiver(puller->get());
  tf::TransportService transport(tf::DescribeWorker(puller->get(), kMaxMessageBytes));
  Encoder encoder(&receiver, &transport);

  int port = 0;
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.AddListeningPort(argv[1], grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&encoder);
  builder.RegisterService(transport.service());
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  std::cout << "listening on port " << port << std::endl;
  server->Wait();
}
