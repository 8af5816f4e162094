// A gateway under load, for tests/load/test_load.py: many requests at once, of mixed sizes, over every lane, to an
// encoder and to a vLLM engine that may die at any moment, while some clients give up.
//
//   tensorferry_load_gateway --encoder 127.0.0.1:50051 --vllm 127.0.0.1:50052 --concurrency 64 --seed 1
//
// Told by lines on standard input, each answered by a JSON line: "start" and "stop" the load, when no request is under way
// any more, "idle": what it holds then. At the end of the input: what became of every request. A wrong digest, or an error
// without words, is an outcome of its own: "wrong" or "unclear".
#include <grpcpp/alarm.h>
#include <grpcpp/create_channel.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <future>
#include <iostream>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "nlohmann/json.hpp"
#include "smg/tokenspeed_encoder.grpc.pb.h"
#include "smg/vllm_engine.grpc.pb.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/gateway/sender.h"
#include "tensorferry/grpc/capability_client.h"
#include "tensorferry/grpc/received.h"
#include "tensorferry/grpc/status.h"
#include "tools/output.h"
#include "tools/settings.h"
#include "tools/sha256.h"

namespace tensorferry::tools {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Random = std::mt19937_64;

constexpr seconds kRequestTime{30};
constexpr int kCancelledPercent = 10;

struct Options {
  std::string encoder, vllm;
  unsigned concurrency = 64;
  uint64_t seed = 1;
};

// What became of the requests.
class Tally {
 public:
  void Add(const std::string& outcome) {
    const std::lock_guard<std::mutex> lock(mu_);
    ++outcomes_[outcome];
  }
  nlohmann::ordered_json ToJson() const { return outcomes_; }

 private:
  std::mutex mu_;
  std::map<std::string, uint64_t> outcomes_;
};

// One worker, and the staging memory that this test gives to it.
struct Target {
  std::string address;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<CapabilityClient> capabilities;
};

Target Reach(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
  Target out{
      .address = address,
      .channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments),
      .capabilities = nullptr};
  out.capabilities = std::make_unique<CapabilityClient>(out.channel, CapabilityClientOptions{});
  return out;
}

// Two gateways: one that workers here map, and one that they get files from.
struct Gateway {
  std::unique_ptr<Exporter> exporter;
  std::unique_ptr<Sender> sender;
};

Gateway Serve(const std::string& local_socket, std::shared_ptr<engine::ShmFiles> files) {
  auto exporter = Exporter::Create({.arena_bytes = uint64_t{96} << 20,
                                    .listen = "127.0.0.1:0",
                                    .local_socket = local_socket,
                                    .background = true});
  if (!exporter.ok() || !(*exporter)->WaitStarted(kRequestTime).ok()) std::abort();
  Gateway out{.exporter = *std::move(exporter), .sender = nullptr};
  out.sender =
      std::make_unique<Sender>(out.exporter.get(), SenderOptions{.files = std::move(files)});
  return out;
}

LanePolicy RandomPolicy(Random& random) {
  constexpr std::array kModes = {Mode::kAuto, Mode::kShm, Mode::kRemote, Mode::kInline};
  return {.mode = kModes[random() % kModes.size()], .allow_fallback = true};
}

uint32_t RandomSize(Random& random) {
  constexpr std::array<uint32_t, 8> kSizes = {0,         1000,          65536,         300'000,
                                              1'000'001, (1 << 20) - 8, (3 << 20) + 1, 9 << 20};
  return kSizes[random() % kSizes.size()];
}

void Fill(std::span<std::byte> bytes, Random& random) {
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + at, &word, std::min(sizeof(word), bytes.size() - at));
  }
}

// The RPC itself.
class Rpc {
 public:
  virtual ~Rpc() = default;
  virtual absl::StatusOr<Attachment> Attach(const Sender& sender, const Lease& lease,
                                            const Capabilities& worker,
                                            const AttachOptions& options) = 0;
  virtual absl::StatusOr<Attachment> AttachInline(const Sender& sender, const Lease& lease,
                                                  const Attachment& first,
                                                  const PullFailure& failure) = 0;
  virtual grpc::Status Call(const std::shared_ptr<grpc::Channel>& channel,
                            grpc::ClientContext* context) = 0;
  // A request that was broken off may be sent once more: nothing has come of it.
  virtual bool repeatable() const = 0;
};

// One whose tensor has a place in its request.
template <class Request, class TensorData>
class RpcOf : public Rpc {
 public:
  absl::StatusOr<Attachment> Attach(const Sender& sender, const Lease& lease,
                                    const Capabilities& worker,
                                    const AttachOptions& options) override {
    return sender.Attach(lease, worker, options, data_);
  }
  absl::StatusOr<Attachment> AttachInline(const Sender& sender, const Lease& lease,
                                          const Attachment& first,
                                          const PullFailure& failure) override {
    return sender.AttachInline(lease, first, failure, data_);
  }

 protected:
  Request request_;
  TensorData* data_ = nullptr;
};

class EncodeRpc final : public RpcOf<tokenspeed::grpc::encoder::EncodeRequest,
                                     tokenspeed::grpc::scheduler::TensorData> {
 public:
  EncodeRpc(const std::string& id, int64_t room) {
    request_.set_request_id(id);
    request_.add_items()->set_bootstrap_room(room);
    auto* item = request_.mutable_mm_inputs()->add_items();
    item->set_modality(smg::grpc::common::IMAGE);
    item->add_placeholders()->set_length(1);
    data_ = item->mutable_encoder_input();
  }
  grpc::Status Call(const std::shared_ptr<grpc::Channel>& channel,
                    grpc::ClientContext* context) override {
    tokenspeed::grpc::encoder::EncodeResponse response;
    return tokenspeed::grpc::encoder::TokenSpeedEncoder::NewStub(channel)->Encode(context, request_,
                                                                                  &response);
  }
  bool repeatable() const override { return true; }
};

class GenerateRpc final
    : public RpcOf<vllm::grpc::engine::GenerateRequest, vllm::grpc::engine::TensorData> {
 public:
  explicit GenerateRpc(const std::string& id) {
    request_.set_request_id(id);
    request_.set_stream(true);
    request_.mutable_tokenized()->add_input_ids(1);
    auto* inputs = request_.mutable_mm_inputs();
    inputs->set_modality(smg::grpc::common::IMAGE);
    data_ = inputs->mutable_pixel_values();
  }
  grpc::Status Call(const std::shared_ptr<grpc::Channel>& channel,
                    grpc::ClientContext* context) override {
    const auto reader =
        vllm::grpc::engine::VllmEngine::NewStub(channel)->Generate(context, request_);
    vllm::grpc::engine::GenerateResponse response;
    bool complete = false;
    while (reader->Read(&response)) complete = response.has_complete();
    grpc::Status status = reader->Finish();
    if (status.ok() && !complete) return {grpc::StatusCode::DATA_LOSS, ""};
    return status;
  }
  bool repeatable() const override { return false; }
};

// A client that leaves: cancels after a while, if the RPC has not ended.
class Leaving {
 public:
  Leaving(grpc::ClientContext* context, milliseconds after) {
    alarm_.Set(std::chrono::system_clock::now() + after, [this, context](bool expired) {
      if (expired) context->TryCancel();
      fired_.set_value();
    });
  }
  ~Leaving() {
    alarm_.Cancel();
    fired_.get_future().wait();  // the context goes next
  }

 private:
  std::promise<void> fired_;
  grpc::Alarm alarm_;
};

class Load {
 public:
  Load(const Options& options, std::vector<Gateway>* gateways)
      : options_(options),
        gateways_(gateways),
        encoder_(Reach(options.encoder)),
        vllm_(Reach(options.vllm)) {}

  ~Load() { Stop(); }

  void Start() {
    ends_ = false;
    for (unsigned t = 0; t < options_.concurrency; ++t) {
      threads_.emplace_back([this, seed = random_()] {
        Random random(seed);
        while (!ends_) tally_.Add(One(random));
      });
    }
  }
  void Stop() {
    ends_ = true;
    for (std::thread& t : threads_) t.join();
    threads_.clear();
  }
  const Tally& tally() const { return tally_; }

 private:
  // One request; what became of it.
  std::string One(Random& random) {
    const Gateway& gateway = (*gateways_)[random() % gateways_->size()];
    const bool generate = random() % 2 == 0;
    const Target& target = generate ? vllm_ : encoder_;
    const LanePolicy policy = RandomPolicy(random);
    const bool leaves = static_cast<int>(random() % 100) < kCancelledPercent;
    const uint32_t nbytes = RandomSize(random);
    Staged staged = gateway.exporter->Stage(nbytes);
    Fill(staged.bytes(), random);
    const auto room = static_cast<int64_t>(random() % INT64_MAX);
    const Lease lease = std::move(staged).Publish({.key = room});
    const Sha256Digest sha256 = Sha256(lease.bytes());
    const std::string id = StrCat("load-", room);
    std::unique_ptr<Rpc> rpc;
    if (generate) {
      rpc = std::make_unique<GenerateRpc>(id);
    } else {
      rpc = std::make_unique<EncodeRpc>(id, room);
    }
    const auto until = std::chrono::system_clock::now() + kRequestTime;
    while (true) {
      const CapabilityClient::Result worker = target.capabilities->Get();
      absl::Status failed = worker.status();
      if (worker.ok()) {
        const absl::StatusOr<Received> got =
            Try(*rpc, gateway, target, lease, **worker,
                {.dtype = Dtype::kUint8,
                 .shape = {nbytes},
                 .worker = target.address,
                 .engine = generate ? EngineProto::kVllm : EngineProto::kTokenSpeed,
                 .policy = policy},
                until, leaves ? int(random() % 20) : -1);
        if (got.ok()) {
          const bool same = got->nbytes == nbytes && got->sha256.size() == sha256.size() &&
                            std::memcmp(got->sha256.data(), sha256.data(), sha256.size()) == 0;
          return same ? StrCat("delivered ", got->transport) : "wrong";
        }
        failed = got.status();
      }
      if (leaves && absl::IsCancelled(failed)) return "left";
      const bool broken_off = absl::IsUnavailable(failed) || absl::IsCancelled(failed);
      const bool again = !worker.ok() || (broken_off && rpc->repeatable());
      if (again && std::chrono::system_clock::now() < until) continue;
      if (failed.message().empty()) return "unclear";
      return broken_off ? "broken off"
                        : StrCat("failed ", ReasonNameOf(failed), ": ", failed.message());
    }
  }

  static absl::StatusOr<Received> Try(Rpc& rpc, const Gateway& gateway, const Target& target,
                                      const Lease& lease, const Capabilities& worker,
                                      const AttachOptions& options,
                                      std::chrono::system_clock::time_point until,
                                      int leaves_after_ms) {
    absl::StatusOr<Attachment> sent = rpc.Attach(*gateway.sender, lease, worker, options);
    while (sent.ok()) {
      grpc::ClientContext context;
      context.set_wait_for_ready(true);
      context.set_deadline(until);
      grpc::Status status;
      {
        std::optional<Leaving> leaving;
        if (leaves_after_ms >= 0) leaving.emplace(&context, milliseconds(leaves_after_ms));
        status = rpc.Call(target.channel, &context);
      }
      target.capabilities->Observe(context);
      if (status.ok()) {
        const std::vector<Received> received = ReadReceived(context);
        if (received.size() == 1) return received.front();
        return absl::InternalError(StrCat(received.size(), " tensors were received, not one"));
      }
      const std::optional<PullFailure> failure = ReadPullFailure(context);
      if (!failure) return FromGrpc(status, context);
      sent = rpc.AttachInline(*gateway.sender, lease, *sent, *failure);
    }
    return sent.status();
  }

  const Options options_;
  std::vector<Gateway>* const gateways_;
  const Target encoder_, vllm_;
  Random random_{options_.seed};
  std::atomic<bool> ends_ = false;
  std::vector<std::thread> threads_;
  Tally tally_;
};

size_t EntriesOf(const char* directory) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(directory),
                                           std::filesystem::directory_iterator()));
}

void PrintIdle(const std::vector<Gateway>& gateways) {
  uint64_t used = 0, resting = 0, leases = 0;
  for (const Gateway& g : gateways) {
    const ExporterStats s = g.exporter->stats();
    used += s.used_bytes;
    resting += s.resting_bytes;
    leases += s.writing + s.published + s.ended + s.resting;
  }
  PrintJson({{"event", "idle"},
             {"fds", EntriesOf("/proc/self/fd")},
             {"threads", EntriesOf("/proc/self/task")},
             {"used_bytes", used},
             {"resting_bytes", resting},
             {"leases", leases}});
}

int Main(const Options& options) {
  const LocalSocket socket("");
  auto files = engine::ShmFiles::Open({});
  if (!files.ok()) return Fail("load", files.status());
  std::vector<Gateway> gateways;
  gateways.push_back(Serve(socket.path(), nullptr));
  gateways.push_back(Serve("", *std::move(files)));
  Load load(options, &gateways);
  std::string line;
  while (std::getline(std::cin, line)) {
    if (line == "idle") {
      PrintIdle(gateways);
      continue;
    }
    line == "start" ? load.Start() : load.Stop();
    PrintJson({{"event", line}});
  }
  load.Stop();
  PrintJson({{"event", "end"}, {"outcomes", load.tally().ToJson()}});
  return kDone;
}

}  // namespace
}  // namespace tensorferry::tools

int main(int argc, char** argv) {
  CLI::App app("A gateway under load");
  tensorferry::tools::Options options;
  app.add_option("--encoder", options.encoder)->required();
  app.add_option("--vllm", options.vllm)->required();
  app.add_option("--concurrency", options.concurrency);
  app.add_option("--seed", options.seed);
  CLI11_PARSE(app, argc, argv);
  return tensorferry::tools::Main(options);
}
