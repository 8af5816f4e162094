// The smallest gateway: writes a tensor once and sends it by the best lane that the worker takes.
//
//   gateway 127.0.0.1:50051
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>

#include "smg/tokenspeed_encoder.grpc.pb.h"
#include "tensorferry/exporter/exporter.h"
#include "tensorferry/gateway/sender.h"
#include "tensorferry/grpc/capability_client.h"
#include "tensorferry/grpc/received.h"
#include "tensorferry/grpc/status.h"

namespace {

namespace tf = tensorferry;
using tokenspeed::grpc::encoder::EncodeRequest;
using tokenspeed::grpc::encoder::EncodeResponse;
using tokenspeed::grpc::encoder::TokenSpeedEncoder;

int Fail(const absl::Status& status) {
  std::cerr << "gateway: " << status << "\n";
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: gateway HOST:PORT\n";
    return 2;
  }
  // Once per process: the memory, and where workers fetch from it.
  auto exporter = tf::Exporter::Create(
      {.arena_bytes = 64 << 20,
       .listen = "127.0.0.1:0",
       .local_socket = "/tmp/tensorferry-example-" + std::to_string(getpid()) + ".sock"});
  if (!exporter.ok()) return Fail(exporter.status());
  const tf::Sender sender(exporter->get(), {});

  // Once per worker: what it can take.
  auto channel = grpc::CreateChannel(argv[1], grpc::InsecureChannelCredentials());
  tf::CapabilityClient capabilities(channel, {});
  const auto worker = capabilities.Get();
  if (!worker.ok()) return Fail(worker.status());

  // Per tensor: write it in place, publish it, put it into the request.
  tf::Staged staged = (*exporter)->Stage(3 * 448 * 448 * 2);
  std::ranges::fill(staged.bytes(), std::byte{0x3f});
  constexpr int64_t kRoom = 77;
  const tf::Lease lease = std::move(staged).Publish({.key = kRoom});

  EncodeRequest request;
  request.add_items()->set_bootstrap_room(kRoom);
  auto* data = request.mutable_mm_inputs()->add_items()->mutable_encoder_input();
  auto sent =
      sender.Attach(lease, **worker, {.dtype = tf::Dtype::kBfloat16, .shape = {3, 448, 448}}, data);

  // Once more, with the bytes in the message, when the worker says that it could not fetch them.
  while (sent.ok()) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    EncodeResponse response;
    const grpc::Status status =
        TokenSpeedEncoder::NewStub(channel)->Encode(&context, request, &response);
    capabilities.Observe(context);
    if (status.ok()) {
      for (const tf::Received& got : tf::ReadReceived(context)) {
        std::cout << got.nbytes << " bytes by lane " << tf::LaneName(got.lane) << " over "
                  << got.transport << "\n";
      }
      return 0;
    }
    const auto failure = tf::ReadPullFailure(context);
    if (!failure) return Fail(tf::FromGrpc(status, context));
    sent = sender.AttachInline(lease, *sent, *failure, data);
  }
  return Fail(sent.status());
}
