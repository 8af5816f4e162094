// Takes a tensor out of a message: its bytes from there, or fetched by the handle in it.
//
//   Receiver receiver(puller.get());
//   receiver.ReceiveAsync(item.encoder_input(), {.timeout = PullBudget(remaining), .key = room},
//                         [=](absl::StatusOr<Tensor> t) { ... reactor->Finish(...); });
//   absl::StatusOr<Tensor> t = receiver.Receive(item.encoder_input(), {.timeout = 5s});  // waits
//
// Works with every generated TensorData that has SMG's fields, whatever their numbers. Everything
// that the message itself tells is checked before a byte is fetched: dtype, shape and byte count
// (kUnknownDtype, kBadShape, kSizeMismatch, kNoPayload), and the key. Files under /dev/shm (the
// payload shm) have no key, and are read where PullerOptions::file is set. Errors keep their Reason
// for the gateway (tensorferry/grpc/status.h).
//
// Thread-safety: everything from any thread; ReceiveAsync never blocks, so it may be called on
// gRPC's own threads. Its callback runs before it returns (bytes in the message, or a refusal) or
// later on a thread of the puller; it must not block, and may end the RPC.
//
// Ownership: the puller outlives the Receiver and all its calls. The bytes of an inline tensor are
// the message's own: keep the message while you use them. Other bytes belong to the Tensor and
// outlive everything; drop it soon, since it may hold memory of the gateway.
#ifndef TENSORFERRY_WORKER_RECEIVER_H_
#define TENSORFERRY_WORKER_RECEIVER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/base/dtype.h"
#include "tensorferry/base/export.h"
#include "tensorferry/base/smg_fields.h"
#include "tensorferry/metrics/metrics.h"
#include "tensorferry/policy/lane.h"
#include "tensorferry/puller/puller.h"

namespace tensorferry {

// A received tensor: row-major, little-endian, contiguous.
struct Tensor {
  std::span<const std::byte> bytes;
  Dtype dtype = Dtype::kFloat32;
  std::vector<uint32_t> shape;
  Lane lane = Lane::kInline;
  std::string_view transport = "grpc";
  // Keeps `bytes`; null for inline tensors, whose bytes are the message's.
  std::shared_ptr<const void> hold;
  // Memory of the gateway, read in place.
  bool borrowed = false;
};

class TENSORFERRY_EXPORT Receiver {
 public:
  using Callback = std::function<void(absl::StatusOr<Tensor>)>;

  // `puller` may be null: only inline tensors are taken then, others end with kLaneOff. `metrics`
  // counts what no puller sees: bytes in the message, and messages that are refused.
  explicit Receiver(Puller* puller, std::shared_ptr<Metrics> metrics = {})
      : puller_(puller), metrics_(std::move(metrics)) {}

  template <class TensorData>
  absl::StatusOr<Tensor> Receive(const TensorData& data, const PullOptions& options) const {
    return Take(Read(data), options);
  }

  // `data` is read before this returns, but see Ownership for inline bytes.
  template <class TensorData>
  void ReceiveAsync(const TensorData& data, const PullOptions& options, Callback done) const {
    TakeAsync(Read(data), options, std::move(done));
  }

 private:
  enum class Payload { kNone, kInline, kShm, kRemote };
  // A TensorData, without the protobuf.
  struct Message {
    std::string_view dtype;
    std::vector<uint32_t> shape;
    Payload payload = Payload::kNone;
    std::string_view inline_bytes;
    Handle handle;
  };

  template <class TensorData>
  static Message Read(const TensorData& data);

  // What the message tells, checked; bytes are still missing when it has a handle.
  absl::StatusOr<Tensor> Check(const Message& message) const;
  // Check, and what follows of it: what needs no pull is counted, and the gateway of a handle that
  // is refused unread may wait to hear of it.
  absl::StatusOr<Tensor> Open(const Message& message) const;
  absl::StatusOr<Tensor> Take(Message message, const PullOptions& options) const;
  void TakeAsync(Message message, const PullOptions& options, Callback done) const;

  Puller* puller_;
  std::shared_ptr<Metrics> metrics_;
};

template <class TensorData>
Receiver::Message Receiver::Read(const TensorData& data) {
  Message out;
  out.dtype = data.dtype();
  out.shape.assign(data.shape().begin(), data.shape().end());
  switch (data.payload_case()) {
    case TensorData::kInline:
      out.payload = Payload::kInline;
      out.inline_bytes = GetInline(data);
      break;
    case TensorData::kShm:
      out.payload = Payload::kShm;
      out.handle = {.transport = "file",
                    .descriptor = data.shm().name(),
                    .nbytes = data.shm().nbytes(),
                    .offset = data.shm().offset()};
      break;
    case TensorData::kRemote:
      out.payload = Payload::kRemote;
      out.handle = {.transport = data.remote().transport(),
                    .descriptor = GetDescriptor(data.remote()),
                    .nbytes = data.remote().nbytes()};
      break;
    case TensorData::PAYLOAD_NOT_SET:
      break;
  }
  return out;
}

}  // namespace tensorferry

#endif  // TENSORFERRY_WORKER_RECEIVER_H_
