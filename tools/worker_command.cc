#include "tools/worker_command.h"

#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_join.h"
#include "tensorferry/base/contains.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/net.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/remote_choice.h"
#include "tensorferry/engine/tcp_socket.h"
#include "tensorferry/grpc/transport_service.h"
#include "tensorferry/worker/describe.h"
#include "tools/library_engines.h"
#include "tools/metrics_flag.h"
#include "tools/output.h"
#include "tools/seconds.h"
#include "tools/serve/encoder_service.h"
#include "tools/serve/journal.h"
#include "tools/serve/tokenspeed_service.h"
#include "tools/serve/vllm_service.h"
#include "tools/setting_flags.h"
#include "tools/signals.h"
#include "tools/work_queue.h"

namespace tensorferry::tools {
namespace {

struct WorkerOptions {
  std::string listen;
  std::vector<std::string> lanes = {"inline", "shm", "remote"};
  std::vector<std::string> engines = {"local", "tcp"};
  EngineFlags flags;
  std::vector<std::string> allow = {"127.0.0.0/8", "::1"};
  uint64_t landing_bytes = uint64_t{1} << 30;
  uint64_t max_message_bytes = uint64_t{256} << 20;
  std::string serve = "encoder";
  ModelFacts model;
  std::vector<uint32_t> tokens = {11, 12, 13, 14};
  double token_time = 0;
  double drain = 30;
  JournalOptions journal;
  std::string metrics;
};

// gRPC only says that it failed; the system says why.
absl::Status CheckListenable(const std::string& listen) {
  const absl::StatusOr<SocketAddress> address = SocketAddress::Parse(listen);
  if (!address.ok()) return absl::OkStatus();  // a name: gRPC resolves it
  return Annotate(engine::ListenTcp(*address).status(), "--listen");
}

std::vector<std::unique_ptr<grpc::Service>> MakeServices(const std::string& serve, Engine* engine) {
  std::vector<std::unique_ptr<grpc::Service>> services;
  if (serve == "vllm") {
    services.push_back(std::make_unique<VllmService>(engine));
  } else if (serve == "tokenspeed") {
    services.push_back(std::make_unique<TokenSpeedService>(engine));
  } else {
    services.push_back(std::make_unique<EncoderService>(engine));
    // Without it gateways would not register the encoder.
    services.push_back(std::make_unique<TokenSpeedInfoService>(engine));
  }
  return services;
}

bool Takes(const WorkerOptions& options, Lane lane) {
  return std::any_of(options.lanes.begin(), options.lanes.end(),
                     [&](const std::string& text) { return *ParseLane(text) == lane; });
}

// "127.0.0.1:0" and 41234 make "127.0.0.1:41234".
std::string WithPort(const std::string& listen, int port) {
  return StrCat(listen.substr(0, listen.rfind(':')), ":", port);
}

absl::Status Serve(const WorkerOptions& options, const Settings& settings, const EndSignals& end) {
  if (absl::Status s = CheckListenable(options.listen); !s.ok()) return s;
  Journal journal(options.journal);
  if (absl::Status s = journal.Prepare(); !s.ok()) return s;
  const absl::StatusOr<ServedMetrics> served = ServeMetrics(options.metrics);
  if (!served.ok()) return served.status();
  PullerOptions puller_options;
  puller_options.metrics = served->metrics;
  puller_options.allow = *AllowList::Parse(options.allow);
  puller_options.log = PrintLog("worker");
  puller_options.local = Takes(options, Lane::kShm) && Contains(options.engines, "local");
  if (Takes(options, Lane::kShm)) {
    puller_options.file = engine::FilePullOptions{.unlink = settings.unlink_after_read};
  }
  puller_options.tcp = Takes(options, Lane::kRemote) && Contains(options.engines, "tcp");
  LibraryOptions library_options{
      .flags = options.flags, .log = puller_options.log, .metrics = served->metrics};
  if (Takes(options, Lane::kRemote)) library_options.transports = options.engines;
  Unavailable unavailable(puller_options.log);
  for (auto& engine : OpenPullLibraries(library_options, puller_options.allow, &unavailable)) {
    puller_options.engines.push_back(std::move(engine));
  }
  // Bytes in the message are always left.
  if (absl::Status s = unavailable.Settle(/*none_left=*/false); !s.ok()) return s;
  // All but bytes in the message may need landing memory: also views that a worker may no longer hold.
  puller_options.landing_bytes =
      Takes(options, Lane::kShm) || Takes(options, Lane::kRemote) ? options.landing_bytes : 0;
  absl::StatusOr<std::unique_ptr<Puller>> puller = Puller::Create(std::move(puller_options));
  if (!puller.ok()) return puller.status();

  const Receiver receiver(puller->get(), served->metrics);
  const bool hold_is_set =
      FromEnvironment(settings, "landing_wait_s") || FromEnvironment(settings, "read_timeout_s");
  const Duration hold = hold_is_set ? settings.hold() : IntakeOptions{}.pull_limit;
  Capabilities capabilities = DescribeWorker(puller->get(), options.max_message_bytes);
  capabilities.hold = hold;
  capabilities.unavailable = unavailable.reasons();
  capabilities.rdma_devices = engine::ActiveRdmaDevices(options.flags.ucx.rdma_devices);
  TransportService transport(capabilities);
  WorkQueue queue(2);
  Engine engine{.intake = {.receiver = &receiver,
                           .queue = &queue,
                           .pull_limit = hold,
                           .on_tensor = [&](const ReceivedTensor& r) { return journal.Tensor(r); },
                           .on_failure = [&](const std::string& id,
                                             const absl::Status& s) { journal.Failure(id, s); }},
                .transport = &transport,
                .model = options.model,
                .shm_namespace = Takes(options, Lane::kShm) ? capabilities.host.shm_namespace : "",
                .answer = {.tokens = options.tokens, .token_time = ToDuration(options.token_time)},
                .on_generated = [&](const Generated& g) { journal.Generate(g); }};
  const std::vector<std::unique_ptr<grpc::Service>> services = MakeServices(options.serve, &engine);

  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  int port = 0;
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  // Otherwise a second worker on the same port would silently share its requests.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddListeningPort(options.listen, grpc::InsecureServerCredentials(), &port);
  for (const auto& service : services) builder.RegisterService(service.get());
  builder.RegisterService(transport.service());
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return MakeError(Reason::kAddressInUse,
                     StrCat("--listen ", options.listen, " cannot be listened on"));
  }

  const std::string listen = WithPort(options.listen, port);
  std::vector<std::string> lanes;
  for (const Lane lane : capabilities.lanes) lanes.emplace_back(LaneName(lane));
  if (options.journal.json) {
    nlohmann::ordered_json ready = {{"event", "ready"},
                                    {"listen", listen},
                                    {"serve", options.serve},
                                    {"lanes", lanes},
                                    {"transports", capabilities.transports},
                                    {"landing_bytes", capabilities.landing_bytes},
                                    {"pid", ::getpid()}};
    if (served->server) ready["metrics"] = served->address();
    PrintJson(ready);
  } else {
    PrintLine(StrCat(options.serve, " worker at ", listen, " takes ", absl::StrJoin(lanes, ", ")));
    if (served->server) PrintLine(StrCat("metrics at http://", served->address(), "/metrics"));
  }

  pollfd ended{end.fd(), POLLIN, 0};
  while (::poll(&ended, 1, -1) < 1) {
  }
  transport.Drain();
  server->Shutdown(std::chrono::system_clock::now() + ToDuration(options.drain));
  server->Wait();
  return absl::OkStatus();
}

// Where no flag says otherwise.
void TakeFromEnvironment(const Settings& settings, const CLI::App& verb, WorkerOptions* options) {
  const bool landing =
      FromEnvironment(settings, "landing_slots") || FromEnvironment(settings, "slot_bytes");
  if (landing && verb.count("--landing-bytes") == 0) {
    options->landing_bytes = settings.landing_bytes;
  }
  if (FromEnvironment(settings, "max_message_bytes") && verb.count("--max-message-bytes") == 0) {
    options->max_message_bytes = settings.max_message_bytes;
  }
}

// What SMG's workers have a choice about and this one has not.
void WarnOfWhatChangesNothing(const Settings& settings) {
  if (settings.send_metadata == SendMetadata::kOn) {
    PrintError("worker", std::string_view(
                             "SMG_RDMA_SEND_MD=1 changes nothing: no READ needs this worker's own "
                             "metadata, and it is never sent"));
  }
  if (!settings.epd_ingest_offloop) {
    PrintError("worker",
               std::string_view("EPD_INGEST_OFFLOOP=0 changes nothing: requests are always read on "
                                "threads of their own"));
  }
  if (!settings.epd_pixel_shm) {
    PrintError("worker",
               std::string_view("EPD_PIXEL_SHM=0 changes nothing: no engine stands behind "
                                "this worker that features would be handed to"));
  }
}

int Work(const CLI::App& verb, WorkerOptions options) {
  const absl::StatusOr<Settings> settings = EnvironmentSettings(SettingEnd::kWorker, "worker");
  if (!settings.ok()) {
    Fail("worker", settings.status());
    return kUsage;
  }
  TakeFromEnvironment(*settings, verb, &options);
  WarnOfWhatChangesNothing(*settings);
  const EndSignals end;
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  const absl::Status status = Serve(options, *settings, end);
  return status.ok() ? kDone : Fail("worker", status);
}

}  // namespace

void AddWorkerCommand(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<WorkerOptions>();
  CLI::App* verb = app.add_subcommand("worker", "Receive tensors, and prove what was received");
  verb->footer(
      "Example:\n  tensorferry worker --listen 127.0.0.1:50051\n  tensorferry worker --listen "
      "10.0.0.7:50051 --allow 10.0.0.0/24 --save received\n  tensorferry worker --listen "
      "127.0.0.1:50051 --serve vllm --model-path llava --served-model llava-1.5\n\n"
      "Serves an engine's service (docs/serve.md), tensorferry.v1.Transport, gRPC health and "
      "reflection. SIGTERM drains.\nWhat no flag says is taken from the environment "
      "(docs/settings.md).");
  verb->add_option("--listen", options->listen, "HOST:PORT to serve gRPC at; port 0 picks one")
      ->required();
  verb->add_option("--lanes", options->lanes, "lanes to take; inline is always taken")
      ->delimiter(',')
      ->capture_default_str()
      ->check([](const std::string& text) { return UsageOf(ParseLane(text).status()); });
  verb->add_option("--engine", options->engines,
                   "what shm and remote go over: local, tcp, ucx, nixl")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::IsMember({"local", "tcp", "ucx", "nixl"}));
  AddNixlFlags(verb, &options->flags.nixl);
  AddUcxFlags(verb, &options->flags.ucx);
  verb->add_option("--allow", options->allow, "networks of gateways that may be dialled (CIDR)")
      ->delimiter(',')
      ->capture_default_str()
      ->check([](const std::string& text) {
        return UsageOf(AllowList::Parse(std::vector<std::string>{text}).status());
      });
  verb->add_option("--landing-bytes", options->landing_bytes,
                   "memory for tensors that arrive over the network")
      ->capture_default_str();
  verb->add_option("--max-message-bytes", options->max_message_bytes, "largest gRPC message")
      ->capture_default_str()
      ->check(CLI::Range(uint64_t{1024}, uint64_t{INT32_MAX}));
  verb->add_option("--serve", options->serve,
                   "what to answer as: encoder and tokenspeed are TokenSpeed's, vllm is vLLM's")
      ->capture_default_str()
      ->check(CLI::IsMember({"encoder", "tokenspeed", "vllm"}));
  verb->add_option("--model-path", options->model.path,
                   "folder in which gateways find the model's tokenizer and configuration")
      ->check(CLI::ExistingDirectory)
      ->transform([](const std::string& path) { return std::filesystem::absolute(path).string(); });
  verb->add_option("--served-model", options->model.served_name, "name under which it is asked for")
      ->capture_default_str();
  verb->add_option("--encoder-dtype", options->model.encoder_dtype,
                   "what gateways make of pictures: float32, float16, bfloat16")
      ->capture_default_str()
      ->check(CLI::IsMember({"float32", "float16", "bfloat16"}));
  verb->add_option("--tokens", options->tokens, "ids that every Generate is answered with")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--token-time", options->token_time, "seconds from each token to the next")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
  verb->add_option("--save", options->journal.save, "folder for one .safetensors file per tensor");
  verb->add_option("--drain", options->drain, "seconds that SIGTERM leaves to requests under way")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  AddMetricsFlag(verb, &options->metrics);
  verb->add_flag("--json", options->journal.json, "one JSON object a line");
  verb->callback([options, verb, exit_code] { *exit_code = Work(*verb, *options); });
}

}  // namespace tensorferry::tools
