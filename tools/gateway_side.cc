#include "tools/gateway_side.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>

#include <algorithm>
#include <utility>

#include "smg/tokenspeed_encoder.grpc.pb.h"
#include "tensorferry/base/contains.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/net.h"
#include "tensorferry/base/random.h"
#include "tensorferry/base/text.h"
#include "tensorferry/grpc/received.h"
#include "tensorferry/grpc/status.h"
#include "tools/stock_worker.h"
#include "tools/worker_facts.h"

namespace tensorferry::tools {
namespace {

using tokenspeed::grpc::encoder::EncodeRequest;
using tokenspeed::grpc::encoder::EncodeResponse;
using tokenspeed::grpc::encoder::TokenSpeedEncoder;

}  // namespace

absl::StatusOr<std::unique_ptr<GatewaySide>> GatewaySide::Create(
    const GatewaySideOptions& options) {
  std::unique_ptr<GatewaySide> side(new GatewaySide(options));
  if (absl::Status s = side->Connect(); !s.ok()) return s;
  if (absl::Status s = side->StartExporter(); !s.ok()) return s;
  SenderOptions sender{.log = options.log, .metrics = options.metrics};
  if (options.files) {
    absl::StatusOr<std::shared_ptr<engine::ShmFiles>> files =
        engine::ShmFiles::Open({.log = options.log});
    if (files.ok()) {
      sender.files = *std::move(files);
    } else if (!options.shm) {
      return files.status();
    }
  }
  side->sender_ = std::make_unique<Sender>(side->exporter_.get(), std::move(sender));
  return side;
}

absl::Status GatewaySide::Connect() {
  if (absl::Status s = Resolve(options_.to, "--to").status(); !s.ok()) return s;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  channel_ = grpc::CreateCustomChannel(options_.to, grpc::InsecureChannelCredentials(), arguments);
  capabilities_ = std::make_unique<CapabilityClient>(
      channel_, CapabilityClientOptions{.timeout = options_.timeout});
  return AskWorker().status();
}

absl::StatusOr<std::shared_ptr<const Capabilities>> GatewaySide::AskWorker() {
  CapabilityClient::Result worker = capabilities_->Get();
  if (worker.ok()) return Completed(*worker);
  return MakeError(Reason::kUnreachable,
                   StrCat("no worker answers at ", options_.to, ": ", worker.status().message()));
}

std::shared_ptr<const Capabilities> GatewaySide::Completed(
    std::shared_ptr<const Capabilities> worker) {
  if (!worker->stock() || !options_.files) return worker;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (stock_worker_) return stock_worker_;
  }
  Capabilities known = WithServerInfo(*worker, channel_, options_.timeout);
  const absl::StatusOr<SocketAddress> address = Resolve(options_.to, "--to");
  if (address.ok()) known = WithListeningUid(std::move(known), *address);
  const std::lock_guard<std::mutex> lock(mu_);
  stock_worker_ = std::make_shared<const Capabilities>(std::move(known));
  return stock_worker_;
}

void GatewaySide::ForgetStockWorker() {
  sender_->WorkerRestarted(options_.to);
  const std::lock_guard<std::mutex> lock(mu_);
  stock_worker_ = nullptr;
}

absl::Status GatewaySide::StartExporter() {
  ExporterOptions options;
  options.arena_bytes = options_.arena_bytes;
  options.lease_ttl = options_.lease_ttl;
  options.log = options_.log;
  options.metrics = options_.metrics;
  if (options_.shm) options.local_socket = options_.local_socket;
  Unavailable unavailable(options_.log);
  options.on_left_out = [&](std::string_view transport, const absl::Status& why) {
    unavailable.Add(transport, why);
  };
  std::vector<ExportLibrary> libraries;
  const bool tcp = Contains(options_.remote, "tcp");
  if (tcp || std::ranges::any_of(options_.remote, NeedsLibrary)) {
    std::string listen = options_.listen;
    if (listen.empty()) {
      absl::StatusOr<SocketAddress> peer = Resolve(options_.to, "--to");
      if (!peer.ok()) return peer.status();
      absl::StatusOr<SocketAddress> local = LocalAddressTowards(*peer);
      if (!local.ok()) return Annotate(local.status(), "--listen");
      listen = local->ToString();
    }
    if (tcp) options.listen = listen;
    libraries = OpenExportLibraries({.transports = options_.remote,
                                     .flags = options_.flags,
                                     .log = options_.log,
                                     .metrics = options_.metrics},
                                    listen, &unavailable);
    for (ExportLibrary& library : libraries) options.engines.push_back(std::move(library.engine));
  }
  absl::StatusOr<std::unique_ptr<Exporter>> exporter = Exporter::Create(std::move(options));
  if (!exporter.ok()) return exporter.status();
  exporter_ = *std::move(exporter);
  const std::vector<std::string> serving = exporter_->transports();
  const bool none_left = serving.empty() && !options_.files;
  if (absl::Status s = unavailable.Settle(none_left); !s.ok()) return s;
  for (const ExportLibrary& library : libraries) {
    if (!Contains(serving, library.transport)) continue;
    if (library.ucx != nullptr) ucx_ = library.ucx;
    listen_ = library.address.ToString();
  }
  if (tcp) listen_ = exporter_->listen_address();
  // A READ over nixl is counted: only its notification says that it has ended.
  counted_ = Contains(serving, "nixl");
  exporter_->WaitPrefaulted();
  return absl::OkStatus();
}

void GatewaySide::Cancel() {
  const std::lock_guard<std::mutex> lock(mu_);
  cancelled_ = true;
  for (grpc::ClientContext* context : under_way_) context->TryCancel();
}

grpc::Status GatewaySide::Call(grpc::ClientContext* context, const EncodeRequest& request,
                               EncodeResponse* response) {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (cancelled_) return {grpc::StatusCode::CANCELLED, "this gateway is ending"};
    under_way_.insert(context);
  }
  grpc::Status status = TokenSpeedEncoder::NewStub(channel_)->Encode(context, request, response);
  const std::lock_guard<std::mutex> lock(mu_);
  under_way_.erase(context);
  return status;
}

absl::StatusOr<Delivery> GatewaySide::Send(const Outgoing& tensor, const LanePolicy& policy) {
  Staged staged = exporter_->Stage(tensor.nbytes);
  if (staged.bytes().size() != tensor.nbytes) {
    return std::move(staged).Publish({}).exported();
  }
  const RealClock clock;
  const Instant staged_at = clock.Now();
  if (absl::Status s = tensor.produce(staged.bytes()); !s.ok()) return s;
  Delivery delivery{.produced = clock.Now() - staged_at};
  RandomSource random;
  const auto room = static_cast<int64_t>(random.Next64() % INT64_MAX);
  Lease lease = std::move(staged).Publish({.key = room, .readers = counted_ ? 1U : 0U});
  delivery.sha256 = Sha256(lease.bytes());

  absl::StatusOr<std::shared_ptr<const Capabilities>> worker = AskWorker();
  if (!worker.ok()) return worker.status();
  EncodeRequest request;
  request.set_request_id(StrCat("encode-", Hex(random.Bytes<16>())));
  request.add_items()->set_bootstrap_room(room);
  auto* item = request.mutable_mm_inputs()->add_items();
  item->set_modality(smg::grpc::common::IMAGE);
  item->add_placeholders()->set_length(1);
  auto* data = item->mutable_encoder_input();
  absl::StatusOr<Attachment> sent = sender_->Attach(lease, **worker,
                                                    {.dtype = tensor.dtype,
                                                     .shape = tensor.shape,
                                                     .worker = options_.to,
                                                     .policy = policy,
                                                     .request = request.request_id()},
                                                    data);
  const Instant began = clock.Now();
  std::optional<PullFailure> failure;
  while (sent.ok()) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + options_.timeout);
    EncodeResponse response;
    const grpc::Status status = Call(&context, request, &response);
    capabilities_->Observe(context);
    if (!status.ok()) {
      if (status.error_code() == grpc::StatusCode::UNAVAILABLE) ForgetStockWorker();
      std::optional<PullFailure> reported = ReadPullFailure(context);
      if (!reported && (*worker)->stock()) reported = ReadStockPullFailure(status);
      if (!reported || failure) {
        const absl::Status why = reported ? reported->ToStatus() : FromGrpc(status, context);
        sender_->Ended(*sent, why);
        return Annotate(why, StrCat("worker ", options_.to));
      }
      failure = reported;
      sent = sender_->AttachInline(lease, *sent, *failure, data);
      continue;
    }
    delivery.took = clock.Now() - began;
    // A pull that failed may have left a READ that is not over.
    if (!failure) lease.ReadersAreDone();
    delivery.lane = sent->lane;
    delivery.transport = sent->transport;
    delivery.reason = LaneReasonName(sent->reason);
    if (failure) StrAppend(&delivery.reason, ":", ReasonNameOf(failure->ToStatus()));
    const std::vector<Received> received = ReadReceived(context);
    if (!received.empty()) {
      delivery.lane = received.front().lane;
      delivery.transport = received.front().transport;
      if (!received.front().sha256.empty()) {
        delivery.verified =
            std::ranges::equal(received.front().sha256, delivery.sha256,
                               [](char a, uint8_t b) { return static_cast<uint8_t>(a) == b; });
      }
    }
    sender_->Ended(*sent, absl::OkStatus(), delivery.transport);
    return delivery;
  }
  if (ReasonOf(sent.status()) == Reason::kArenaFull) {
    return Annotate(sent.status(),
                    StrCat("--arena-bytes ", options_.arena_bytes, " does not suffice"));
  }
  return failure ? Annotate(sent.status(), StrCat("worker ", options_.to)) : sent.status();
}

}  // namespace tensorferry::tools
