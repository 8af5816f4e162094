#include "tools/doctor/own_worker.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <utility>

#include "tensorferry/base/contains.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/grpc/transport_service.h"
#include "tensorferry/worker/describe.h"
#include "tensorferry/worker/receiver.h"
#include "tools/serve/encoder_service.h"
#include "tools/work_queue.h"

namespace tensorferry::tools {

// In the order in which they depend on each other.
struct OwnWorker::Parts {
  explicit Parts(std::unique_ptr<Puller> p)
      : puller(std::move(p)),
        receiver(puller.get()),
        transport(DescribeWorker(puller.get(), /*max_message_bytes=*/0)),
        queue(1),
        engine{.intake = {.receiver = &receiver,
                          .queue = &queue,
                          .on_tensor = [](const ReceivedTensor&) { return absl::OkStatus(); },
                          .on_failure = [](const std::string&, const absl::Status&) {}},
               .transport = &transport},
        encoder(&engine) {}

  const std::unique_ptr<Puller> puller;
  const Receiver receiver;
  TransportService transport;
  WorkQueue queue;
  Engine engine;
  EncoderService encoder;
  std::unique_ptr<grpc::Server> server;
  int port = 0;
};

absl::StatusOr<std::unique_ptr<OwnWorker>> OwnWorker::Start(const OwnWorkerOptions& options) {
  // Bytes in the message need no landing memory.
  const uint64_t landing_bytes = options.transports.empty() ? 0 : options.landing_bytes;
  const auto takes = [&](std::string_view t) { return Contains(options.transports, t); };
  PullerOptions puller_options{.allow = options.allow,
                               .landing_bytes = landing_bytes,
                               .local = takes("local"),
                               .tcp = takes("tcp")};
  if (takes("file")) puller_options.file = engine::FilePullOptions{};
  Unavailable unavailable(puller_options.log);
  for (auto& engine : OpenPullLibraries({.transports = options.transports, .flags = options.flags},
                                        puller_options.allow, &unavailable)) {
    puller_options.engines.push_back(std::move(engine));
  }
  if (absl::Status s = unavailable.Settle(puller_options.engines.empty()); !s.ok()) return s;
  absl::StatusOr<std::unique_ptr<Puller>> puller = Puller::Create(std::move(puller_options));
  if (!puller.ok()) return puller.status();

  auto parts = std::make_unique<Parts>(*std::move(puller));
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &parts->port);
  builder.RegisterService(&parts->encoder);
  builder.RegisterService(parts->transport.service());
  parts->server = builder.BuildAndStart();
  if (parts->server == nullptr || parts->port == 0) {
    return MakeError(Reason::kAddressInUse, "127.0.0.1:0 cannot be listened on: is lo up?");
  }
  return std::unique_ptr<OwnWorker>(new OwnWorker(std::move(parts)));
}

OwnWorker::OwnWorker(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

OwnWorker::~OwnWorker() {
  parts_->server->Shutdown(std::chrono::system_clock::now());
  parts_->server->Wait();
}

std::string OwnWorker::address() const { return StrCat("127.0.0.1:", parts_->port); }

}  // namespace tensorferry::tools
