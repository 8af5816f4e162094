// Whole unary calls: the tensor is in the message, or a handle that the worker fetches it by before
// it answers.
//
//   auto server = CallServer::Create("127.0.0.1", puller);           // worker; null: inline only
//   auto client = CallClient::Create(server->listen(), exporter);        // gateway
//   absl::StatusOr<Called> called = client->Send(lease, key);            // by handle
//   CallClient::Prepare(&message, nbytes);                               // write the bytes there
//   called = client->Send(&message, key);                                // in the message
//
// The call is TokenSpeed's Encode. The server looks at every byte, and says how long that took, so
// that it is not counted.
// Thread-safety: from any thread.
#ifndef TENSORFERRY_TOOLS_BENCH_CALL_H_
#define TENSORFERRY_TOOLS_BENCH_CALL_H_

#include <grpcpp/server.h>

#include <atomic>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "smg/tokenspeed_encoder.grpc.pb.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/exporter/exporter.h"
#include "tensorferry/gateway/sender.h"
#include "tensorferry/puller/puller.h"
#include "tensorferry/worker/receiver.h"

namespace tensorferry::tools::bench {

class CallServer {
 public:
  static absl::StatusOr<std::unique_ptr<CallServer>> Create(const std::string& host,
                                                            Puller* puller);
  ~CallServer();

  const std::string& listen() const { return listen_; }
  // What looking at the bytes has cost so far.
  double check_cpu_seconds() const;

 private:
  class Service;
  CallServer() = default;
  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::string listen_;
};

struct Called {
  Duration took = {};  // without looking at the bytes
  std::string transport = {};
};

class CallClient {
 public:
  // `exporter` may be null: bytes in messages only.
  static std::unique_ptr<CallClient> Create(const std::string& worker, const Exporter* exporter,
                                            Capabilities capabilities);

  // kChecksum for wrong bytes; what the worker says.
  absl::StatusOr<Called> Send(const Lease& lease, int64_t key) const;

  // A request with room for the bytes, to be written there.
  using Message = tokenspeed::grpc::encoder::EncodeRequest;
  static std::span<std::byte> Prepare(Message* message, uint64_t nbytes);
  absl::StatusOr<Called> Send(Message* message, int64_t key) const;

 private:
  CallClient() = default;
  absl::StatusOr<Called> Call(Instant began, const Message& message) const;

  std::unique_ptr<tokenspeed::grpc::encoder::TokenSpeedEncoder::Stub> stub_;
  std::unique_ptr<Sender> sender_;
  Capabilities capabilities_;
};

}  // namespace tensorferry::tools::bench

#endif  // TENSORFERRY_TOOLS_BENCH_CALL_H_
