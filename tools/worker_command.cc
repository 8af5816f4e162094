#include "tools/worker_command.h"

#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tensorferry/base/contains.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/base/net.h"
#include "tensorferry/base/text.h"
#include "tensorferry/grpc/transport_service.h"
#include "tensorferry/worker/describe.h"
#include "tools/encoder_service.h"
#include "tools/input/safetensors.h"
#include "tools/nixl_engines.h"
#include "tools/output.h"
#include "tools/setting_flags.h"
#include "tools/signals.h"
#include "tools/ucx_engines.h"

namespace tensorferry::tools {
namespace {

struct WorkerOptions {
  std::string listen;
  std::vector<std::string> lanes = {"inline", "shm", "remote"};
  std::vector<std::string> engines = {"local", "tcp"};
  NixlFlags nixl;
  UcxFlags ucx;
  std::vector<std::string> allow = {"127.0.0.0/8", "::1"};
  uint64_t landing_bytes = uint64_t{1} << 30;
  uint64_t max_message_bytes = uint64_t{256} << 20;
  std::string save;
  double drain = 30;
  bool json = false;
};

// Prints what arrives, from several threads, and saves it where that was asked for.
class Journal {
 public:
  explicit Journal(const WorkerOptions& options) : json_(options.json), save_(options.save) {}

  absl::Status Tensor(const ReceivedTensor& r) {
    const uint64_t number = ++count_;
    if (!save_.empty()) {
      // The sender's request id is no file name to be trusted.
      const std::string path =
          StrCat(save_, "/", absl::StrFormat("tensor-%06d", number), ".safetensors");
      if (absl::Status s = SaveSafetensors(path, {.name = "encoder_input",
                                                  .shape = r.tensor->shape,
                                                  .dtype = r.tensor->dtype,
                                                  .bytes = r.tensor->bytes});
          !s.ok()) {
        return Annotate(s, "--save");
      }
    }
    const double seconds = std::chrono::duration<double>(r.took).count();
    const std::lock_guard<std::mutex> lock(mu_);
    if (json_) {
      PrintJson({{"event", "tensor"},
                 {"request_id", r.request_id},
                 {"lane", LaneName(r.tensor->lane)},
                 {"transport", r.tensor->transport},
                 {"shape", r.tensor->shape},
                 {"dtype", DtypeName(r.tensor->dtype)},
                 {"nbytes", r.tensor->bytes.size()},
                 {"sha256", Hex(r.sha256)},
                 {"seconds", seconds}});
    } else {
      PrintLine(absl::StrFormat("%-6s %-6s %-18s %-9s %11d B %9.2f ms  sha256 %s",
                                AbslView(LaneName(r.tensor->lane)), AbslView(r.tensor->transport),
                                ShapeText(r.tensor->shape), AbslView(DtypeName(r.tensor->dtype)),
                                r.tensor->bytes.size(), seconds * 1e3, Hex(r.sha256)));
    }
    return absl::OkStatus();
  }

  void Failure(const std::string& request_id, const absl::Status& status) {
    const std::lock_guard<std::mutex> lock(mu_);
    PrintError("worker",
               StrCat(request_id, ": ", status.message(), " (", ReasonNameOf(status), ")"));
  }

 private:
  const bool json_;
  const std::string save_;
  std::atomic<uint64_t> count_ = 0;
  std::mutex mu_;
};

// gRPC only says that it failed; the system says why.
absl::Status CheckListenable(const std::string& listen) {
  absl::StatusOr<SocketAddress> address = SocketAddress::Parse(listen);
  if (!address.ok()) return absl::OkStatus();  // a name: gRPC resolves it
  sockaddr_storage storage{};
  const socklen_t length = address->ToSockaddr(&storage);
  const UniqueFd fd(::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return SystemError(errno, StrCat("a socket for --listen ", listen));
  const int one = 1;
  (void)::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&storage), length) != 0 ||
      ::listen(fd.get(), 1) != 0) {
    return SystemError(errno, StrCat("--listen ", listen));
  }
  return absl::OkStatus();
}

absl::Status PrepareSave(const std::string& save) {
  if (save.empty()) return absl::OkStatus();
  std::error_code error;
  std::filesystem::create_directories(save, error);
  if (error || ::access(save.c_str(), W_OK) != 0) {
    return SystemError(error ? error.value() : errno, StrCat("--save ", save));
  }
  return absl::OkStatus();
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
  if (absl::Status s = PrepareSave(options.save); !s.ok()) return s;
  PullerOptions puller_options;
  puller_options.allow = *AllowList::Parse(options.allow);
  puller_options.log = PrintLog("worker");
  puller_options.local = Takes(options, Lane::kShm) && Contains(options.engines, "local");
  if (Takes(options, Lane::kShm)) {
    puller_options.file = engine::FilePullOptions{.unlink = settings.unlink_after_read};
  }
  puller_options.tcp = Takes(options, Lane::kRemote) && Contains(options.engines, "tcp");
  if (Takes(options, Lane::kRemote) && Contains(options.engines, "nixl")) {
    absl::StatusOr<std::unique_ptr<engine::PullEngine>> nixl =
        OpenNixlPull(options.nixl, puller_options.allow, puller_options.log);
    if (nixl.ok()) {
      puller_options.engines.push_back(*std::move(nixl));
    } else {
      // The other transports serve all the same.
      PrintError("worker", nixl.status());
    }
  }
  if (Takes(options, Lane::kRemote) && Contains(options.engines, "ucx")) {
    absl::StatusOr<std::unique_ptr<engine::PullEngine>> ucx =
        OpenUcxPull(options.ucx, puller_options.allow, puller_options.log);
    if (ucx.ok()) {
      puller_options.engines.push_back(*std::move(ucx));
    } else {
      PrintError("worker", ucx.status());
    }
  }
  // All but bytes in the message may need landing memory: also views that a worker may no longer hold.
  puller_options.landing_bytes =
      Takes(options, Lane::kShm) || Takes(options, Lane::kRemote) ? options.landing_bytes : 0;
  absl::StatusOr<std::unique_ptr<Puller>> puller = Puller::Create(std::move(puller_options));
  if (!puller.ok()) return puller.status();

  const Receiver receiver(puller->get());
  const Capabilities capabilities = DescribeWorker(puller->get(), options.max_message_bytes);
  TransportService transport(capabilities);
  Journal journal(options);
  WorkQueue queue(2);
  const bool hold =
      FromEnvironment(settings, "landing_wait_s") || FromEnvironment(settings, "read_timeout_s");
  EncoderService encoder({.receiver = &receiver,
                          .transport = &transport,
                          .queue = &queue,
                          .pull_limit = hold ? settings.hold() : EncoderServiceOptions{}.pull_limit,
                          .on_tensor = [&](const ReceivedTensor& r) { return journal.Tensor(r); },
                          .on_failure = [&](const std::string& id,
                                            const absl::Status& s) { journal.Failure(id, s); }});

  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  int port = 0;
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  // Otherwise a second worker on the same port would silently share its requests.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddListeningPort(options.listen, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&encoder);
  builder.RegisterService(transport.service());
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return MakeError(Reason::kAddressInUse,
                     StrCat("--listen ", options.listen, " cannot be listened on"));
  }

  const std::string listen = WithPort(options.listen, port);
  std::vector<std::string> lanes;
  for (const Lane lane : capabilities.lanes) lanes.emplace_back(LaneName(lane));
  if (options.json) {
    PrintJson({{"event", "ready"},
               {"listen", listen},
               {"lanes", lanes},
               {"transports", capabilities.transports},
               {"landing_bytes", capabilities.landing_bytes},
               {"pid", ::getpid()}});
  } else {
    PrintLine(StrCat("worker at ", listen, " takes ", absl::StrJoin(lanes, ", ")));
  }

  pollfd ended{end.fd(), POLLIN, 0};
  while (::poll(&ended, 1, -1) < 1) {
  }
  transport.Drain();
  server->Shutdown(std::chrono::system_clock::now() +
                   std::chrono::duration_cast<std::chrono::system_clock::duration>(
                       std::chrono::duration<double>(options.drain)));
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

int Work(const CLI::App& verb, WorkerOptions options) {
  const absl::StatusOr<Settings> settings = EnvironmentSettings(SettingEnd::kWorker, "worker");
  if (!settings.ok()) {
    Fail("worker", settings.status());
    return kUsage;
  }
  TakeFromEnvironment(*settings, verb, &options);
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
      "10.0.0.7:50051 --allow 10.0.0.0/24 --save received\n\n"
      "Serves TokenSpeed's Encode, tensorferry.v1.Transport, gRPC health and reflection. SIGTERM "
      "drains. What no flag says\nis taken from the environment (docs/settings.md).");
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
  AddNixlFlags(verb, &options->nixl);
  AddUcxFlags(verb, &options->ucx);
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
  verb->add_option("--save", options->save, "folder for one .safetensors file per tensor");
  verb->add_option("--drain", options->drain, "seconds that SIGTERM leaves to requests under way")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  verb->add_flag("--json", options->json, "one JSON object a line");
  verb->callback([options, verb, exit_code] { *exit_code = Work(*verb, *options); });
}

}  // namespace tensorferry::tools
