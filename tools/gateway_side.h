// The gateway's end of one worker, for the verbs that send: an exporter, the channel, and what the
// worker can take.
//
//   auto gateway = GatewaySide::Create({.to = "127.0.0.1:50051", .arena_bytes = 64 << 20, ...});
//   absl::StatusOr<Delivery> d =
//       (*gateway)->Send({.shape = s, .dtype = t, .nbytes = n, .produce = f}, policy);
//
// One call of Send is one request of one tensor: staged, produced in place, published, sent by the
// lane that the policy picks, sent again in the message if the worker says that it could not fetch
// it and the policy allows that.
// Thread-safety: Send from any thread.
// Ownership: the leases of a Send end with it.
#ifndef TENSORFERRY_TOOLS_GATEWAY_SIDE_H_
#define TENSORFERRY_TOOLS_GATEWAY_SIDE_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "smg/tokenspeed_encoder.pb.h"
#include "tensorferry/exporter/exporter.h"
#include "tensorferry/gateway/sender.h"
#include "tensorferry/grpc/capability_client.h"
#include "tensorferry/policy/decide.h"
#include "tools/library_engines.h"
#include "tools/sha256.h"

namespace tensorferry::tools {

struct GatewaySideOptions {
  std::string to;  // HOST:PORT of the worker
  uint64_t arena_bytes = uint64_t{64} << 20;
  bool shm = true;    // serve engine/local
  bool files = true;  // write files under /dev/shm, for lane shm
  // Engines of lane remote to serve, at one address: tcp, and those of library_engines.h. Other words do
  // not count.
  std::vector<std::string> remote = {"tcp"};
  EngineFlags flags = {};
  // Where the exporter listens; empty: the local address of the route to the worker, a free port.
  std::string listen = {};
  // Of engine/local.
  std::string local_socket = {};
  Duration timeout = std::chrono::seconds(30);  // of one request
  Duration lease_ttl = ExporterOptions{}.lease_ttl;
  LogSink log = {};
  std::shared_ptr<Metrics> metrics = {};
};

// One tensor to send.
struct Outgoing {
  std::vector<uint32_t> shape = {};
  Dtype dtype = Dtype::kUint8;
  uint64_t nbytes = 0;
  std::function<absl::Status(std::span<std::byte>)> produce = {};
};

struct Delivery {
  Lane lane = Lane::kInline;
  std::string transport = {};
  // Why this lane: LaneReasonName, and behind a colon the reason of a failed pull.
  std::string reason = {};
  Sha256Digest sha256 = {};
  // What the worker says of the bytes that it got; none where it does not say.
  std::optional<bool> verified = {};
  Duration produced = {};  // decoding and converting, straight into the arena
  Duration took = {};      // of the request or requests, without producing the bytes
};

class GatewaySide {
 public:
  // kUnreachable when there is no worker; the exporter's errors; a library's, where nothing else is left.
  static absl::StatusOr<std::unique_ptr<GatewaySide>> Create(const GatewaySideOptions& options);

  absl::StatusOr<Delivery> Send(const Outgoing& tensor, const LanePolicy& policy);
  // Where workers fetch from, empty without lane remote.
  std::string listen_address() const { return listen_; }
  // What UCX says of the ways to its readers, for people; empty without it.
  std::string DescribeUcxReaders() { return ucx_ == nullptr ? "" : ucx_->DescribeReaders(); }
  // Ends what is under way, and lets nothing more begin: kCancelled.
  void Cancel();

 private:
  explicit GatewaySide(GatewaySideOptions options) : options_(std::move(options)) {}
  absl::Status Connect();
  absl::Status StartExporter();
  // The present answer to "what can you take?": a restarted worker is asked anew.
  absl::StatusOr<std::shared_ptr<const Capabilities>> AskWorker();
  grpc::Status Call(grpc::ClientContext* context,
                    const tokenspeed::grpc::encoder::EncodeRequest& request,
                    tokenspeed::grpc::encoder::EncodeResponse* response);
  // With what can be found out of a worker that does not know our service, once for each process of
  // it.
  std::shared_ptr<const Capabilities> Completed(std::shared_ptr<const Capabilities> worker);
  void ForgetStockWorker();

  const GatewaySideOptions options_;
  std::string listen_;
  std::unique_ptr<Exporter> exporter_;
  engine::UcxExportEngine* ucx_ = nullptr;  // the exporter's
  bool counted_ = false;                    // its readers, which then say that they are done
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<CapabilityClient> capabilities_;
  std::unique_ptr<Sender> sender_;
  std::mutex mu_;
  std::shared_ptr<const Capabilities> stock_worker_;  // completed
  bool cancelled_ = false;
  std::set<grpc::ClientContext*> under_way_;
};

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_GATEWAY_SIDE_H_
