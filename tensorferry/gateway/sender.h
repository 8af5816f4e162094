// Puts a published tensor into a message: inline, or as a handle that the worker fetches it by.
//
//   Sender sender(exporter.get(), {});
//   auto sent = sender.Attach(lease, worker, {.dtype = Dtype::kBfloat16, .shape = {3, 448, 448}},
//                             item->mutable_encoder_input());
//   grpc::Status status = stub->Encode(&context, request, &response);
//   if (auto failure = ReadPullFailure(context)) {            // tensorferry/grpc/status.h
//     auto again = sender.AttachInline(lease, *sent, *failure, item->mutable_encoder_input());
//     if (again.ok()) ...                                     // one more RPC, with the bytes
//   } else {
//     sender.Ended(*sent, FromGrpc(status, context));         // for metrics
//   }
//
// With SenderOptions::files a tensor may also travel in a file under /dev/shm, which is how SMG's
// own workers share memory. It is written by Attach, once for each, and belongs to the Attachment:
// keep that until the RPC has ended.
//
// Works with every generated TensorData that has SMG's fields (shape, dtype, and the payload
// inline, shm or remote), whatever their numbers: Attach is a template, so the library itself
// carries no protobuf.
//
// The lease must live until the RPC has ended: until then the worker fetches from it, and it is
// what a second try sends. Each try and each worker gets an Attach of its own.
//
// Thread-safety: const calls from any thread.
// Ownership: the exporter outlives the Sender; files are shared.
#ifndef TENSORFERRY_GATEWAY_SENDER_H_
#define TENSORFERRY_GATEWAY_SENDER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/dtype.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/export.h"
#include "tensorferry/base/log.h"
#include "tensorferry/base/log_limit.h"
#include "tensorferry/base/smg_fields.h"
#include "tensorferry/engine/file/shm_files.h"
#include "tensorferry/exporter/exporter.h"
#include "tensorferry/metrics/metrics.h"
#include "tensorferry/policy/capabilities.h"
#include "tensorferry/policy/decide.h"

namespace tensorferry {

struct SenderOptions {
  LanePolicy policy = {};
  // Writes the files of lane shm; null: none. For workers that cannot map the arena: SMG's own.
  std::shared_ptr<engine::ShmFiles> files = {};
  // Every tensor's lane and reason, at kDebug; every fallback (policy/fallback.h) at kWarning, as
  // pairs of key and value, of many alike only a few.
  LogSink log = {};
  LogLimitOptions log_limit = {};
  std::shared_ptr<Metrics> metrics = {};  // null: nobody counts
  const Clock* clock = nullptr;           // for tests; outlives the sender
};

struct AttachOptions {
  Dtype dtype = Dtype::kFloat32;
  std::vector<uint32_t> shape = {};
  // A name for the worker, the same for as long as its process lives: with engine/nixl a stock
  // worker is known by it after the agent was started anew. Empty: then stock workers get no second
  // agent's leases.
  std::string worker = {};
  // Whose message it goes into, and as what: decides as in docs/lanes.md.
  EngineProto engine = EngineProto::kTokenSpeed;
  Modality modality = Modality::kImage;
  TensorRole role = TensorRole::kMain;
  // Instead of SenderOptions::policy, for this worker or request.
  std::optional<LanePolicy> policy = {};
  // The request's id, for the log.
  std::string request = {};
};

// How a tensor was put into its message: the labels of metrics and logs.
struct TENSORFERRY_EXPORT Attachment {
  // What the gateway expects to carry it. When a handle permits several transports the worker
  // picks, and says which in `tensorferry-received-bin`.
  Lane lane = Lane::kInline;
  std::string transport = {};
  LaneReason reason = LaneReason::kPreferred;
  std::vector<Rejection> rejected = {};
  // The policy allows it to go inline after a failed pull.
  bool may_go_inline = false;
  // Of transport "file": it is there as long as a copy of this lives.
  std::shared_ptr<const engine::ShmFile> file = {};
  // Whose it is, for Ended and the log.
  EngineProto engine = EngineProto::kTokenSpeed;
  uint64_t nbytes = 0;
  std::string worker = {};
  std::string request = {};
  Instant attached_at = {};

  // "lane=inline transport=grpc reason=arena_full not=shm:arena_full,remote:arena_full": for a log,
  // or for trailing metadata of the gateway's own answer, so that a client need not guess.
  std::string ToString() const;
};

// A worker's own word that it could not fetch a tensor, so that nothing was done with the request.
// An RPC that failed without one is ambiguous: the worker may have run it.
struct TENSORFERRY_EXPORT PullFailure {
  std::optional<Reason> reason = {};  // none: a name that only the worker's newer version knows
  std::string message = {};
  bool retryable = false;

  absl::Status ToStatus() const;
};

class SendCounts;

class TENSORFERRY_EXPORT Sender {
 public:
  // `exporter` may be null: everything goes inline then.
  Sender(const Exporter* exporter, SenderOptions options);

  // Sets dtype, shape and payload. On an error `data` is as it was: kSizeMismatch or kBadShape when
  // the lease holds other bytes than shape and dtype ask for; when no lane is left, what spoke
  // against it (see NoLaneError).
  template <class TensorData>
  absl::StatusOr<Attachment> Attach(const Lease& lease, const Capabilities& worker,
                                    const AttachOptions& options, TensorData* data) const;

  // After a failed pull: replaces the handle by the bytes, once. Returns the failure itself when
  // that cannot help, the tensor went inline already, or the policy forbids another lane; `data` is
  // then as it was. For metrics the first try has ended with it.
  template <class TensorData>
  absl::StatusOr<Attachment> AttachInline(const Lease& lease, const Attachment& first,
                                          const PullFailure& failure, TensorData* data) const;

  // The RPC has ended, for metrics; not where AttachInline is told of it. `transport` is what the
  // worker says that carried the tensor; empty: what the attachment says.
  void Ended(const Attachment& sent, const absl::Status& status,
             std::string_view transport = {}) const;

  // The worker of this name (AttachOptions::worker) is another process now.
  void WorkerRestarted(const std::string& name) const;

 private:
  struct Plan {
    Attachment attachment;
    std::string descriptor;  // empty for inline and for a file
  };
  // The agents that stock workers know, by the worker's name.
  struct Known {
    std::mutex mu;
    std::map<std::string, uint64_t, std::less<>> epochs;
  };
  // What serves this lease.
  GatewayFacts FactsNow(const Lease& lease) const;
  std::optional<LaneReason> AgainstNixl(const Capabilities& worker, const std::string& name) const;
  // A stock worker reads from this agent from now on, and from no other.
  void RememberAgent(const std::string& name, uint64_t epoch) const;
  absl::StatusOr<Plan> MakePlan(const Lease& lease, const Capabilities& worker,
                                const AttachOptions& options) const;
  static std::string FileOwner();
  absl::StatusOr<Attachment> PlanInline(const Attachment& first, const PullFailure& failure) const;

  template <class TensorData>
  static void SetInline(const Lease& lease, TensorData* data) {
    MutableInline(data)->assign(reinterpret_cast<const char*>(lease.bytes().data()),
                                lease.bytes().size());
  }

  const Exporter* exporter_;
  SenderOptions options_;
  GatewayFacts facts_;  // what never changes of them
  std::shared_ptr<Known> known_ = std::make_shared<Known>();
  std::shared_ptr<SendCounts> counts_;
};

template <class TensorData>
absl::StatusOr<Attachment> Sender::Attach(const Lease& lease, const Capabilities& worker,
                                          const AttachOptions& options, TensorData* data) const {
  absl::StatusOr<Plan> plan = MakePlan(lease, worker, options);
  if (!plan.ok()) return plan.status();
  const std::string_view dtype = DtypeName(options.dtype);
  data->mutable_dtype()->assign(dtype.data(), dtype.size());
  data->mutable_shape()->Clear();
  data->mutable_shape()->Add(options.shape.begin(), options.shape.end());
  if (plan->attachment.lane == Lane::kInline) {
    SetInline(lease, data);
  } else if (plan->attachment.file) {
    auto* shm = data->mutable_shm();
    shm->set_name(plan->attachment.file->name());
    shm->set_offset(0);
    shm->set_nbytes(lease.bytes().size());
    shm->set_owner_id(FileOwner());
  } else {
    auto* remote = data->mutable_remote();
    remote->set_transport(plan->attachment.transport == "nixl" ? "nixl" : "tensorferry");
    SetDescriptor(remote, std::move(plan->descriptor));
    remote->set_nbytes(lease.bytes().size());
  }
  return std::move(plan->attachment);
}

template <class TensorData>
absl::StatusOr<Attachment> Sender::AttachInline(const Lease& lease, const Attachment& first,
                                                const PullFailure& failure,
                                                TensorData* data) const {
  absl::StatusOr<Attachment> again = PlanInline(first, failure);
  if (again.ok()) SetInline(lease, data);
  return again;
}

}  // namespace tensorferry

#endif  // TENSORFERRY_GATEWAY_SENDER_H_
