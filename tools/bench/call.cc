#include "tools/bench/call.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/server_builder.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/smg_fields.h"
#include "tensorferry/base/text.h"
#include "tensorferry/grpc/received.h"
#include "tensorferry/grpc/status.h"
#include "tools/bench/line_stream.h"
#include "tools/bench/pattern.h"
#include "tools/bench/usage.h"

namespace tensorferry::tools::bench {
namespace {

using tokenspeed::grpc::encoder::EncodeRequest;
using tokenspeed::grpc::encoder::EncodeResponse;
using tokenspeed::grpc::encoder::TokenSpeedEncoder;

constexpr char kCheckKey[] = "bench-check-ns";

auto* TensorOf(EncodeRequest* request) {
  auto* inputs = request->mutable_mm_inputs();
  return (inputs->items_size() > 0 ? inputs->mutable_items(0) : inputs->add_items())
      ->mutable_encoder_input();
}

void SetKey(EncodeRequest* request, int64_t key) {
  (request->items_size() > 0 ? request->mutable_items(0) : request->add_items())
      ->set_bootstrap_room(key);
}

}  // namespace

class CallServer::Service final : public TokenSpeedEncoder::Service {
 public:
  explicit Service(Puller* puller) : receiver_(puller) {}

  grpc::Status Encode(grpc::ServerContext* context, const EncodeRequest* request,
                      EncodeResponse* response) override {
    if (request->mm_inputs().items_size() != 1 || request->items_size() != 1) {
      return ToGrpc(absl::InvalidArgumentError("a call of a benchmark has one item and one room"));
    }
    const int64_t key = request->items(0).bootstrap_room();
    const absl::StatusOr<Tensor> tensor = receiver_.Receive(
        request->mm_inputs().items(0).encoder_input(), {.timeout = kPatience, .key = key});
    if (!tensor.ok()) return FailWith(context, tensor.status());
    const Instant began = RealClock().Now();
    const double cpu = ThreadCpuSeconds();
    const bool right = IsPattern(key, tensor->bytes);
    check_cpu_ns_ += static_cast<int64_t>((ThreadCpuSeconds() - cpu) * 1e9);
    context->AddTrailingMetadata(kCheckKey, StrCat((RealClock().Now() - began).count()));
    if (!right) {
      return FailWith(context, MakeError(Reason::kChecksum, "other bytes arrived than were sent"));
    }
    AddReceived(context, {.lane = tensor->lane,
                          .transport = std::string(tensor->transport),
                          .nbytes = tensor->bytes.size()});
    response->set_accepted(true);
    return grpc::Status::OK;
  }

  double check_cpu_seconds() const { return static_cast<double>(check_cpu_ns_.load()) * 1e-9; }

 private:
  const Receiver receiver_;
  std::atomic<int64_t> check_cpu_ns_ = 0;
};

absl::StatusOr<std::unique_ptr<CallServer>> CallServer::Create(const std::string& host,
                                                               Puller* puller) {
  const absl::StatusOr<SocketAddress> address = SocketAddress::ParseHost(host, 0);
  if (!address.ok()) return address.status();
  std::unique_ptr<CallServer> server(new CallServer);
  server->service_ = std::make_unique<Service>(puller);
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  int port = 0;
  builder.AddListeningPort(address->ToString(), grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(server->service_.get());
  server->server_ = builder.BuildAndStart();
  if (!server->server_ || port == 0) {
    return MakeError(Reason::kAddressInUse, StrCat("gRPC cannot listen on ", host));
  }
  server->listen_ = SocketAddress::ParseHost(host, static_cast<uint16_t>(port))->ToString();
  return server;
}

CallServer::~CallServer() {
  if (server_) server_->Shutdown();
}

double CallServer::check_cpu_seconds() const { return service_->check_cpu_seconds(); }

std::unique_ptr<CallClient> CallClient::Create(const std::string& worker, const Exporter* exporter,
                                               Capabilities capabilities) {
  std::unique_ptr<CallClient> client(new CallClient);
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  client->stub_ = TokenSpeedEncoder::NewStub(
      grpc::CreateCustomChannel(worker, grpc::InsecureChannelCredentials(), arguments));
  client->sender_ = std::make_unique<Sender>(exporter, SenderOptions{});
  client->capabilities_ = std::move(capabilities);
  return client;
}

absl::StatusOr<Called> CallClient::Send(const Lease& lease, int64_t key) const {
  const Instant began = RealClock().Now();
  EncodeRequest message;
  SetKey(&message, key);
  const LanePolicy policy = {.mode = ModeOf(capabilities_.lanes.back())};
  const absl::StatusOr<Attachment> sent =
      sender_->Attach(lease, capabilities_,
                      {.dtype = Dtype::kUint8,
                       .shape = {static_cast<uint32_t>(lease.bytes().size())},
                       .policy = policy},
                      TensorOf(&message));
  if (!sent.ok()) return sent.status();
  return Call(began, message);
}

std::span<std::byte> CallClient::Prepare(Message* message, uint64_t nbytes) {
  auto* tensor = TensorOf(message);
  tensor->set_dtype(std::string(DtypeName(Dtype::kUint8)));
  tensor->clear_shape();
  tensor->add_shape(static_cast<uint32_t>(nbytes));
  std::string* bytes = MutableInline(tensor);
  bytes->resize(nbytes);
  return std::as_writable_bytes(std::span(*bytes));
}

absl::StatusOr<Called> CallClient::Send(Message* message, int64_t key) const {
  const Instant began = RealClock().Now();
  SetKey(message, key);
  return Call(began, *message);
}

absl::StatusOr<Called> CallClient::Call(Instant began, const Message& message) const {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  context.set_wait_for_ready(true);
  EncodeResponse response;
  const grpc::Status status = stub_->Encode(&context, message, &response);
  const Duration took = RealClock().Now() - began;
  if (!status.ok()) return FromGrpc(status, context);
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto check = metadata.find(kCheckKey);
  const std::vector<Received> received = ReadReceived(context);
  int64_t check_ns = 0;
  if (check == metadata.end() || received.size() != 1 ||
      !absl::SimpleAtoi(absl::string_view(check->second.data(), check->second.size()), &check_ns)) {
    return MakeError(Reason::kProtocol, "the worker does not say what it received");
  }
  return Called{.took = took - Duration(check_ns), .transport = received.front().transport};
}

}  // namespace tensorferry::tools::bench
