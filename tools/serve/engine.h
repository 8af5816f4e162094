// What the services of a worker have in common: how they receive, what they answer, what runs.
//
//   Engine engine{.intake = {...}, .transport = &transport, .answer = {.tokens = {11, 12}}};
//   VllmService service(&engine);
//
// Thread-safety: RunningRequests from any thread; the rest is constant once a server has started.
// Ownership: an Engine outlives its services.
#ifndef TENSORFERRY_TOOLS_SERVE_ENGINE_H_
#define TENSORFERRY_TOOLS_SERVE_ENGINE_H_

#include <grpcpp/server_context.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tensorferry/base/clock.h"
#include "tensorferry/grpc/transport_service.h"
#include "tools/serve/intake.h"

namespace tensorferry::tools {

// What a gateway is told of the model.
struct ModelFacts {
  std::string served_name = "tensorferry";
  // Where a gateway on this host finds tokenizer.json, config.json and so on. May be empty.
  std::string path = {};
  // What the gateway makes of pictures.
  std::string encoder_dtype = "bfloat16";
};

// The same for every prompt.
struct FixedAnswer {
  std::vector<uint32_t> tokens = {};
  Duration token_time = Duration::zero();  // from each to the next
};

// How a Generate ended.
enum class Outcome : uint8_t { kAnswered, kCancelled, kFailure };
std::string_view OutcomeName(Outcome outcome);

struct Generated {
  std::string request_id = {};
  bool stream = false;
  size_t tensors = 0;
  size_t tokens = 0;
  Outcome outcome = Outcome::kAnswered;
};

class Stoppable {
 public:
  virtual ~Stoppable() = default;
  // From any thread; does not wait.
  virtual void Stop() = 0;
};

// By their ids, which their senders choose, perhaps the same twice.
class RunningRequests {
 public:
  void Add(const std::string& id, const std::shared_ptr<Stoppable>& request);
  void Remove(const std::string& id, const Stoppable* request);
  // Whether there was such a request.
  bool Stop(const std::string& id);
  size_t size() const;

 private:
  mutable std::mutex mu_;
  std::multimap<std::string, std::shared_ptr<Stoppable>> requests_;
};

struct Engine {
  IntakeOptions intake = {};
  const TransportService* transport = nullptr;
  ModelFacts model = {};
  // The /dev/shm whose files are read here. Empty: none are.
  std::string shm_namespace = {};
  FixedAnswer answer = {};
  // When nothing of the request is left.
  std::function<void(const Generated&)> on_generated = {};
  RealClock clock = {};
  Instant started = clock.Now();
  RunningRequests running = {};

  double uptime_seconds() const {
    return std::chrono::duration<double>(clock.Now() - started).count();
  }
};

// Answers a unary RPC whose response is complete.
grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_SERVE_ENGINE_H_
