#include "tensorferry/worker/receiver.h"

#include <algorithm>
#include <utility>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry {
namespace {

bool ReadsFiles(const Puller* puller) {
  if (puller == nullptr) return false;
  const std::vector<std::string> transports = puller->transports();
  return std::find(transports.begin(), transports.end(), "file") != transports.end();
}

absl::StatusOr<Tensor> WithBytes(Tensor tensor, const View& view) {
  tensor.bytes = view.bytes();
  tensor.transport = view.transport();
  tensor.lane = LaneOfTransport(view.transport()).value_or(Lane::kRemote);
  tensor.hold = view.hold();
  tensor.borrowed = view.borrowed();
  return tensor;
}

}  // namespace

absl::StatusOr<Tensor> Receiver::Check(const Message& message) const {
  Tensor out;
  const absl::StatusOr<Dtype> dtype = ParseDtype(message.dtype);
  if (!dtype.ok()) return dtype.status();
  out.dtype = *dtype;
  out.shape = message.shape;
  uint64_t nbytes = message.handle.nbytes;
  switch (message.payload) {
    case Payload::kNone:
      return MakeError(Reason::kNoPayload,
                       StrCat("the tensor ", ShapeText(message.shape),
                              " has no payload: one of inline, shm, remote must be set"));
    case Payload::kInline:
      nbytes = message.inline_bytes.size();
      out.bytes = std::as_bytes(std::span(message.inline_bytes));
      break;
    case Payload::kShm:
    case Payload::kRemote:
      break;
  }
  if (absl::Status s = CheckTensorBytes(message.shape, *dtype, nbytes); !s.ok()) return s;
  if (message.payload == Payload::kShm && !ReadsFiles(puller_)) {
    return MakeError(Reason::kLaneOff,
                     "a file under /dev/shm, but this worker reads none: set PullerOptions::file, "
                     "or set that gateway to inline");
  }
  if (message.payload == Payload::kRemote) {
    if (puller_ == nullptr) {
      return MakeError(
          Reason::kLaneOff,
          "a handle to fetch, but this worker takes bytes in the message only: it has no "
          "Puller");
    }
  }
  return out;
}

absl::StatusOr<Tensor> Receiver::Open(const Message& message) const {
  absl::StatusOr<Tensor> tensor = Check(message);
  if (!tensor.ok() && puller_ != nullptr && message.payload == Payload::kRemote) {
    puller_->Decline(message.handle);
  }
  const bool in_message = message.payload == Payload::kInline;
  if (metrics_ && (!tensor.ok() || in_message)) {
    const auto transport = LabelValue::Transport(in_message ? "grpc" : "");
    metrics_->Add(Metric::kReceivedTensors, {transport, tensor.status()});
    if (tensor.ok()) metrics_->Add(Metric::kReceivedBytes, {transport}, tensor->bytes.size());
  }
  return tensor;
}

absl::StatusOr<Tensor> Receiver::Take(Message message, const PullOptions& options) const {
  absl::StatusOr<Tensor> tensor = Open(message);
  if (!tensor.ok() || message.payload == Payload::kInline) return tensor;
  const absl::StatusOr<View> view = puller_->Pull(message.handle, options);
  if (!view.ok()) return view.status();
  return WithBytes(*std::move(tensor), *view);
}

void Receiver::TakeAsync(Message message, const PullOptions& options, Callback done) const {
  absl::StatusOr<Tensor> tensor = Open(message);
  if (!tensor.ok() || message.payload == Payload::kInline) {
    done(std::move(tensor));
    return;
  }
  puller_->PullAsync(
      message.handle, options,
      [tensor = *std::move(tensor), done = std::move(done)](absl::StatusOr<View> view) mutable {
        if (!view.ok()) {
          done(view.status());
        } else {
          done(WithBytes(std::move(tensor), *view));
        }
      });
}

}  // namespace tensorferry
