#include "tools/send_command.h"

#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "tensorferry/base/cancel.h"
#include "tensorferry/base/contains.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/policy/encoder_dtype.h"
#include "tools/gateway_side.h"
#include "tools/input/input.h"
#include "tools/metrics_flag.h"
#include "tools/output.h"
#include "tools/seconds.h"
#include "tools/setting_flags.h"
#include "tools/settings.h"
#include "tools/signals.h"

namespace tensorferry::tools {
namespace {

struct SendOptions {
  std::vector<std::string> files;
  std::string to;
  std::string lane = "auto";
  bool lane_given = false;
  std::string shm_transport;
  std::string dtype;
  std::string listen;
  std::string local_socket;
  uint64_t arena_bytes = 0;
  uint64_t max_pixels = InputOptions{}.max_pixels;
  uint32_t repeat = 1;
  uint32_t concurrency = 1;
  double timeout = 30;
  std::vector<std::string> engines = {"local", "tcp"};
  EngineFlags flags;
  bool assume_pull = false;
  bool allow_fallback = false;
  std::string metrics;
  bool json = false;
};

// Prints what happens to each tensor, from several threads, and counts.
class Report {
 public:
  Report(bool json, bool timing, size_t total) : json_(json), timing_(timing), total_(total) {}

  void Delivered(const Input& input, const Delivery& d) {
    const std::lock_guard<std::mutex> lock(mu_);
    ++done_;
    if (d.verified.has_value() && !*d.verified) {
      failed_ = true;
      Say(StrCat(NameOf(input), ": the worker received other bytes over ", LaneName(d.lane),
                 " than were sent (checksum_mismatch)"));
    }
    const double seconds = std::chrono::duration<double>(d.took).count();
    if (timing_) {
      Say(absl::StrFormat(
          "timing nbytes=%d lane=%s transport=%s produce_ms=%.3f rpc_ms=%.3f file=%s", input.nbytes,
          AbslView(LaneName(d.lane)), d.transport,
          std::chrono::duration<double, std::milli>(d.produced).count(), seconds * 1e3,
          NameOf(input)));
    }
    if (json_) {
      PrintJson({{"file", NameOf(input)},
                 {"shape", input.shape},
                 {"dtype", DtypeName(input.dtype)},
                 {"nbytes", input.nbytes},
                 {"lane", LaneName(d.lane)},
                 {"transport", d.transport},
                 {"reason", d.reason},
                 {"sha256", Hex(d.sha256)},
                 {"verified", d.verified ? nlohmann::ordered_json(*d.verified)
                                         : nlohmann::ordered_json(nullptr)},
                 {"seconds", seconds}});
    } else {
      ClearProgress();
      PrintLine(absl::StrFormat("%-28s %-18s %-9s %11d B  %-6s %-6s %9.2f ms  %s", NameOf(input),
                                ShapeText(input.shape), AbslView(DtypeName(input.dtype)),
                                input.nbytes, AbslView(LaneName(d.lane)), d.transport,
                                seconds * 1e3,
                                !d.verified   ? "not verified: the worker does not say"
                                : *d.verified ? "verified"
                                              : "DIFFERENT BYTES"));
    }
    ShowProgress();
  }

  void Failed(const std::string& file, const absl::Status& status) {
    const std::lock_guard<std::mutex> lock(mu_);
    ++done_;
    failed_ = true;
    if (json_) {
      PrintJson({{"file", file},
                 {"error", std::string(status.message())},
                 {"code", ReasonNameOf(status)},
                 {"retryable", IsRetryable(status)}});
    }
    const bool named = StdView(status.message()).find(file) != std::string_view::npos;
    Say(StrCat(named ? "" : StrCat(file, ": "), status.message(), " (", ReasonNameOf(status), ")"));
    ShowProgress();
  }

  bool failed() const { return failed_; }
  static std::string NameOf(const Input& input) {
    return input.tensor.empty() ? input.file : StrCat(input.file, "#", input.tensor);
  }

 private:
  void Say(const std::string& text) {
    ClearProgress();
    PrintError("send", text);
  }
  void ShowProgress() const {
    if (!progress_) return;
    if (done_ < total_) {
      std::fprintf(stderr, "\r%zu of %zu tensors", done_, total_);
    } else {
      ClearProgress();
    }
  }
  void ClearProgress() const {
    if (progress_) std::fprintf(stderr, "\r\x1b[K");
  }

  const bool json_;
  const bool timing_;
  const bool progress_ = ::isatty(STDERR_FILENO) == 1;
  const size_t total_;
  std::mutex mu_;
  size_t done_ = 0;
  bool failed_ = false;
};

struct Opened {
  std::vector<Input> inputs;
  std::vector<std::pair<std::string, absl::Status>> refused;  // files
};

Opened OpenAll(const SendOptions& options, Dtype picture_dtype) {
  InputOptions input_options{.picture_dtype = picture_dtype, .max_pixels = options.max_pixels};
  if (!options.dtype.empty()) input_options.dtype = *ParseDtype(options.dtype);
  Opened out;
  for (const std::string& file : options.files) {
    absl::StatusOr<std::vector<Input>> inputs = OpenInputs(file, input_options);
    if (!inputs.ok()) {
      out.refused.emplace_back(file, inputs.status());
    } else {
      std::move(inputs->begin(), inputs->end(), std::back_inserter(out.inputs));
    }
  }
  return out;
}

// Room for as many tensors as are under way at a time, the largest of them.
uint64_t ArenaFor(const std::vector<Input>& inputs, uint32_t concurrency) {
  uint64_t largest = 0;
  for (const Input& input : inputs) largest = std::max(largest, input.nbytes);
  constexpr uint64_t kSlack = uint64_t{1} << 20;
  // One more: a worker may let go of a tensor a moment after its request has ended.
  return std::max(uint64_t{16} << 20,
                  (concurrency + uint64_t{1}) * (largest + largest / 16 + kSlack));
}

// Ends what is under way when a signal asks for it, so that nothing is left behind.
class EndWatch {
 public:
  EndWatch(const EndSignals& signals, std::function<void()> end)
      : thread_([this, &signals, end = std::move(end)] {
          pollfd waits[] = {{signals.fd(), POLLIN, 0}, {done_.fd(), POLLIN, 0}};
          while (::poll(waits, std::size(waits), -1) < 0) {
          }
          if (waits[0].revents == 0) return;
          ended_ = true;
          end();
        }) {}
  ~EndWatch() {
    done_.Cancel();
    thread_.join();
  }
  bool ended() const { return ended_; }

 private:
  const Cancellation done_ = Cancellation::Create();
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

// The flags before the environment. A mode that the environment names is SMG's gateway's: what
// cannot be had falls back, and small tensors go in the message. A lane that --lane names is taken.
LanePolicy PolicyOfSend(const SendOptions& options, const Settings& settings) {
  const bool named = options.lane_given;
  const bool by_environment = !named && (FromEnvironment(settings, "mode") || settings.pixel_rdma);
  LanePolicy policy = PolicyOf(settings);
  if (!by_environment) {
    policy.mode = *ParseMode(options.lane);
    policy.always_minimum = false;
    policy.allow_remote = true;
    policy.allow_fallback = FromEnvironment(settings, "allow_fallback") && settings.allow_fallback;
  }
  policy.allow_fallback = policy.allow_fallback || options.allow_fallback;
  policy.assume_pull = policy.assume_pull || options.assume_pull;
  return policy;
}

uint64_t ArenaOfSend(const SendOptions& options, const Settings& settings,
                     const std::vector<Input>& inputs) {
  if (options.arena_bytes != 0) return options.arena_bytes;
  if (FromEnvironment(settings, "pool_slots") || FromEnvironment(settings, "slot_bytes")) {
    return settings.arena_bytes;
  }
  return ArenaFor(inputs, options.concurrency);
}

int Send(const SendOptions& options) {
  const absl::StatusOr<Settings> settings = EnvironmentSettings(SettingEnd::kGateway, "send");
  if (!settings.ok()) {
    Fail("send", settings.status());
    return kUsage;
  }
  const EndSignals signals;
  const LanePolicy policy = PolicyOfSend(options, *settings);
  const EncoderDtype dtype =
      ChooseEncoderDtype(*settings, EngineProto::kTokenSpeed, Modality::kImage, {});
  const Opened opened = OpenAll(options, dtype.dtype);
  Report report(options.json, settings->log_mm_timing,
                opened.inputs.size() * options.repeat + opened.refused.size());
  for (const auto& [file, status] : opened.refused) report.Failed(file, status);
  if (opened.inputs.empty()) return kFailed;

  const absl::StatusOr<ServedMetrics> served = ServeMetrics(options.metrics);
  if (!served.ok()) return Fail("send", served.status());
  if (served->server) {
    PrintError("send", StrCat("metrics at http://", served->address(), "/metrics"));
  }
  const LocalSocket local_socket(options.local_socket);
  const auto serves = [&](Mode mode) {
    const bool others =
        policy.mode == Mode::kAuto || (policy.always_minimum && policy.allow_fallback);
    return policy.mode == mode || others;
  };
  const bool shm = serves(Mode::kShm);
  const bool remote = serves(Mode::kRemote) && policy.allow_remote;
  GatewaySideOptions side{
      .to = options.to,
      .arena_bytes = ArenaOfSend(options, *settings, opened.inputs),
      .shm = shm && Contains(options.engines, "local") && options.shm_transport != "file",
      .files = shm && options.shm_transport != "local",
      .remote = remote ? options.engines : std::vector<std::string>(),
      .flags = options.flags,
      .listen = options.listen.empty() ? settings->listen() : options.listen,
      .local_socket = local_socket.path(),
      .timeout = ToDuration(options.timeout),
      .lease_ttl = settings->slot_ttl(),
      .log = PrintLog("send"),
      .metrics = served->metrics};
  std::atomic<GatewaySide*> active = nullptr;
  const EndWatch watch(signals, [&] {
    GatewaySide* const side_now = active;
    // Until there is one, connecting may take as long as its timeout, and leaves nothing.
    if (side_now == nullptr) ::_exit(kFailed);
    side_now->Cancel();
  });
  absl::StatusOr<std::unique_ptr<GatewaySide>> gateway = GatewaySide::Create(side);
  if (!gateway.ok()) return Fail("send", gateway.status());
  active = gateway->get();

  std::atomic<size_t> next = 0;
  const size_t total = opened.inputs.size() * options.repeat;
  const auto work = [&] {
    for (size_t i = next++; i < total && !watch.ended(); i = next++) {
      const Input& input = opened.inputs[i % opened.inputs.size()];
      const absl::StatusOr<Delivery> delivery = (*gateway)->Send({.shape = input.shape,
                                                                  .dtype = input.dtype,
                                                                  .nbytes = input.nbytes,
                                                                  .produce = input.produce},
                                                                 policy);
      if (delivery.ok()) {
        report.Delivered(input, *delivery);
      } else {
        report.Failed(Report::NameOf(input), delivery.status());
      }
    }
  };
  std::vector<std::thread> threads;
  for (size_t t = 1; t < std::min<size_t>(options.concurrency, total); ++t)
    threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
  if (watch.ended()) PrintError("send", "ended by a signal");
  return report.failed() || watch.ended() ? kFailed : kDone;
}

}  // namespace

void AddSendCommand(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<SendOptions>();
  CLI::App* verb = app.add_subcommand("send", "Send files to a worker, and check what it received");
  verb->footer(
      "Example:\n  tensorferry send photo.jpg features.npy --to 127.0.0.1:50051 --lane remote\n\n"
      "Pictures (JPEG, PNG) become [3,H,W] in bfloat16, value/255; arrays (.npy, .safetensors) "
      "stay "
      "as they are,\nunless --dtype is given. A named lane takes every size and fails rather than "
      "take another one. A stock worker on this host gets lane shm\nas a file under /dev/shm, when "
      "the lane is named. What no flag says is taken from the environment (docs/settings.md).");
  verb->add_option("files", options->files, "pictures and arrays")->required();
  verb->add_option("--to", options->to, "HOST:PORT of the worker")->required();
  verb->add_option("--lane", options->lane, "auto, inline, shm or remote")
      ->capture_default_str()
      ->check([](const std::string& text) { return UsageOf(ParseMode(text).status()); });
  verb->add_option("--shm-transport", options->shm_transport,
                   "local or file: carry lane shm by this alone (default: local where the worker "
                   "can map memory, else file)")
      ->check(CLI::IsMember({"local", "file"}));
  verb->add_option("--engine", options->engines,
                   "what shm and remote go over: local, tcp, ucx, nixl")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::IsMember({"local", "tcp", "ucx", "nixl"}));
  AddNixlExportFlags(verb, &options->flags.nixl);
  AddUcxExportFlags(verb, &options->flags.ucx);
  verb->add_flag("--assume-pull", options->assume_pull,
                 "this stock worker fetches over nixl, although it does not say so");
  verb->add_option("--dtype", options->dtype, "bfloat16, float16, float32 or uint8")
      ->check(CLI::IsMember({"bfloat16", "float16", "float32", "uint8"}));
  verb->add_option("--repeat", options->repeat, "send every tensor N times")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  verb->add_option("--concurrency", options->concurrency, "requests under way at a time")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  verb->add_flag("--allow-fallback", options->allow_fallback,
                 "take another lane when the named one cannot be had");
  verb->add_option("--listen", options->listen,
                   "IP:PORT where workers fetch from (default: the address of the route to the "
                   "worker, a free port)");
  verb->add_option("--local-socket", options->local_socket,
                   "path of the unix socket of lane shm (default: a private one)");
  verb->add_option("--arena-bytes", options->arena_bytes,
                   "size of the staging arena (default: what the files need)");
  verb->add_option("--max-pixels", options->max_pixels, "refuse larger pictures")
      ->capture_default_str();
  verb->add_option("--timeout", options->timeout, "seconds for one request")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  AddMetricsFlag(verb, &options->metrics);
  verb->add_flag("--json", options->json, "one JSON object a line");
  verb->callback([options, verb, exit_code] {
    options->lane_given = verb->count("--lane") > 0;
    *exit_code = Send(*options);
  });
}

}  // namespace tensorferry::tools
