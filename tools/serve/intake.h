// All tensors of one request: received, hashed, reported, and given back, whatever becomes of the
// request.
//
//   const auto intake = std::make_shared<Intake>(&options, request->request_id(), budget);
//   intake->Add({.name = "pixel_values"}, request->mm_inputs().pixel_values());
//   intake->Start([=](const absl::Status& status, std::span<const Received> receipts) { ... });
//   intake->Cancel();                    // the client has gone
//
// Thread-safety: Add and then Start from one thread; Cancel from any, at any time. Nothing blocks
// the caller: `done` is called on a thread of the queue, or before Start returns if there is no
// tensor; when it is called, no tensor is held any more.
// Ownership: the options, what they point to, and the request outlive the call of `done`.
#ifndef TENSORFERRY_TOOLS_SERVE_INTAKE_H_
#define TENSORFERRY_TOOLS_SERVE_INTAKE_H_

#include <grpcpp/server_context.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensorferry/base/cancel.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/grpc/received.h"
#include "tensorferry/policy/engine.h"
#include "tensorferry/worker/receiver.h"
#include "tools/sha256.h"
#include "tools/work_queue.h"

namespace tensorferry::tools {

// Which tensor of a request.
struct TensorName {
  std::string name = {};  // the field of a main tensor, the key of a side tensor
  TensorRole role = TensorRole::kMain;
  size_t item = 0;
};

// A tensor that has arrived; `tensor` is only readable during the call.
struct ReceivedTensor {
  std::string request_id;
  TensorName name;
  const Tensor* tensor = nullptr;
  Sha256Digest sha256 = {};
  Duration took = {};  // from the request's arrival
};

struct IntakeOptions {
  const Receiver* receiver = nullptr;
  WorkQueue* queue = nullptr;
  // The longest that a tensor is waited for.
  Duration pull_limit = std::chrono::seconds(60);
  // An error fails the request. From any thread of the queue.
  std::function<absl::Status(const ReceivedTensor&)> on_tensor = {};
  // A tensor that did not arrive.
  std::function<void(const std::string& request_id, const absl::Status&)> on_failure = {};
};

class Intake : public std::enable_shared_from_this<Intake> {
 public:
  // What arrived, in the order of Add. With an error none.
  using Done = std::function<void(const absl::Status&, std::span<const Received>)>;

  // `remaining`: until the request's deadline.
  Intake(const IntakeOptions* options, std::string request_id, std::optional<Duration> remaining);

  // `key`: that the tensor's lease must have.
  template <class TensorData>
  void Add(TensorName name, const TensorData& data, std::optional<int64_t> key = {}) {
    tensors_.push_back({.name = std::move(name),
                        .key = key,
                        .receive = [&data](const Receiver& receiver, const PullOptions& options,
                                           Receiver::Callback done) {
                          receiver.ReceiveAsync(data, options, std::move(done));
                        }});
  }
  // Each element of a map of side tensors.
  void AddSides(size_t item, const auto& sides) {
    for (const auto& [name, data] : sides) {
      Add({.name = name, .role = TensorRole::kSide, .item = item}, data);
    }
  }
  size_t size() const { return tensors_.size(); }

  void Start(Done done);
  void Cancel() const { cancel_.Cancel(); }

 private:
  struct Entry {
    TensorName name;
    std::optional<int64_t> key;
    std::function<void(const Receiver&, const PullOptions&, Receiver::Callback)> receive;
    Received receipt = {};  // written by the tensor's own thread
  };

  // On a thread of the queue; lets go of the tensor.
  void Arrived(Entry& entry, absl::StatusOr<Tensor>& tensor, Duration took);
  absl::Status Report(Entry& entry, const absl::StatusOr<Tensor>& tensor, Duration took) const;
  void Finish();

  const IntakeOptions* const options_;
  const std::string request_id_;
  const RealClock clock_;
  const Instant began_;
  const Duration budget_;
  const Cancellation cancel_ = Cancellation::Create();
  std::vector<Entry> tensors_;
  Done done_;
  std::mutex mu_;
  size_t left_ = 0;
  absl::Status failure_;
};

// Into the answer's trailing metadata: of all, or, if they are too many for that, of the first.
void AddReceipts(grpc::ServerContextBase* context, std::span<const Received> receipts);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_SERVE_INTAKE_H_
