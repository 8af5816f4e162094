// A worker for tests: a gRPC server on a unix socket whose Encode is a function.
//
//   TestWorker worker(path, [](auto* context, const auto& request, auto finish) { finish(...); });
//   worker.Serve(transport.service());                   // null: a stock worker
//   grpc::ClientContext context;
//   grpc::Status status = Encode(worker.channel(), request, &context);
//
// Thread-safety: one thread; the function is called on gRPC's threads.
#ifndef TENSORFERRY_GRPC_WORKER_TESTING_H_
#define TENSORFERRY_GRPC_WORKER_TESTING_H_

#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "smg/tokenspeed_encoder.grpc.pb.h"

namespace tensorferry {

using tokenspeed::grpc::encoder::EncodeRequest;
using tokenspeed::grpc::encoder::EncodeResponse;
using tokenspeed::grpc::encoder::TokenSpeedEncoder;

class TestWorker {
 public:
  using Finish = std::function<void(grpc::Status)>;
  using Handler =
      std::function<void(grpc::CallbackServerContext*, const EncodeRequest&, Finish finish)>;

  // Serves at "unix:`path`", which is free.
  TestWorker(std::string path, Handler handler)
      : address_("unix:" + path), encoder_(std::move(handler)) {
    // gRPC 1.51 may wait 10 s for its own poller when the last of its objects goes: keep one.
    static const bool kept = (grpc_init(), true);
    EXPECT_TRUE(kept);
  }
  ~TestWorker() { Stop(); }

  // `service` may be null. May be called again after Stop.
  void Serve(grpc::Service* service) {
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(-1);
    builder.AddListeningPort(address_, grpc::InsecureServerCredentials());
    builder.RegisterService(&encoder_);
    if (service != nullptr) builder.RegisterService(service);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }
  void Stop() {
    if (server_) server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
  }
  // Takes no more requests, and answers those that it has.
  void Drain() {
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(60));
    server_.reset();
  }
  // A new one each time, which reconnects quickly.
  std::shared_ptr<grpc::Channel> channel() const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 10);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 10);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 50);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments);
  }

 private:
  class Encoder final : public TokenSpeedEncoder::CallbackService {
   public:
    explicit Encoder(Handler handler) : handler_(std::move(handler)) {}
    grpc::ServerUnaryReactor* Encode(grpc::CallbackServerContext* context,
                                     const EncodeRequest* request, EncodeResponse*) override {
      grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
      handler_(context, *request, [reactor](grpc::Status s) { reactor->Finish(std::move(s)); });
      return reactor;
    }

   private:
    Handler handler_;
  };

  std::string address_;
  Encoder encoder_;
  std::unique_ptr<grpc::Server> server_;
};

// After a Stop: an RPC that is started before the channel has noticed may fail either way.
inline void AwaitDisconnected(const std::shared_ptr<grpc::Channel>& channel) {
  const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(30);
  while (channel->GetState(false) == GRPC_CHANNEL_READY) {
    ASSERT_TRUE(channel->WaitForStateChange(GRPC_CHANNEL_READY, deadline));
  }
}
inline void AwaitConnected(const std::shared_ptr<grpc::Channel>& channel) {
  ASSERT_TRUE(
      channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(30)));
}

inline grpc::Status Encode(const std::shared_ptr<grpc::Channel>& channel,
                           const EncodeRequest& request, grpc::ClientContext* context) {
  context->set_wait_for_ready(true);
  if (context->deadline() == std::chrono::system_clock::time_point::max()) {
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  }
  EncodeResponse response;
  return TokenSpeedEncoder::NewStub(channel)->Encode(context, request, &response);
}

}  // namespace tensorferry

#endif  // TENSORFERRY_GRPC_WORKER_TESTING_H_
