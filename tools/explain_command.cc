#include "tools/explain_command.h"

#include <grpc/support/log.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "tensorferry/base/contains.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/file/shm_name.h"
#include "tensorferry/policy/decide.h"
#include "tensorferry/policy/settings.h"
#include "tensorferry/wire/descriptor.h"
#include "tools/file_io.h"
#include "tools/output.h"
#include "tools/seconds.h"
#include "tools/setting_flags.h"
#include "tools/stock_worker.h"
#include "tools/worker_facts.h"

namespace tensorferry::tools {
namespace {

using Json = nlohmann::ordered_json;

struct ExplainOptions {
  std::string engine_proto = "tokenspeed";
  std::string modality = "image";
  std::string tensor = "main";
  uint64_t nbytes = uint64_t{1} << 20;
  std::string worker;
  std::string worker_info;
  std::vector<std::string> engines = {"local", "file", "tcp"};
  double timeout = 5;
  bool json = false;
  SettingFlags settings;
};

absl::StatusOr<WorkerInfo> ReadWorkerInfo(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadText(path);
  if (!text.ok()) return text.status();
  absl::StatusOr<WorkerInfo> info = ParseWorkerInfo(*text);
  return info.ok() ? info : Annotate(info.status(), path);
}

absl::StatusOr<WorkerInfo> FindWorker(const ExplainOptions& options) {
  if (!options.worker_info.empty()) return ReadWorkerInfo(options.worker_info);
  if (options.worker.empty()) return WorkerInfo{};
  const absl::StatusOr<SocketAddress> address = Resolve(options.worker, "--worker");
  if (!address.ok()) return address.status();
  absl::StatusOr<Capabilities> worker =
      AskWorker(options.worker, *address, ToDuration(options.timeout));
  if (!worker.ok()) return worker.status();
  return WorkerInfo{.capabilities = *std::move(worker)};
}

// What a gateway with these settings serves. None is started.
GatewayFacts DescribeGateway(const ExplainOptions& options, const Settings& settings) {
  GatewayFacts gateway{.host = ThisHost(), .descriptor_versions = {wire::kDescriptorVersion}};
  const auto serve = [&](std::string_view transport, bool possible) {
    if (possible && Contains(options.engines, transport)) {
      gateway.transports.emplace_back(transport);
    }
  };
  const std::string directory(engine::kShmDirectory);
  serve("local", true);
  serve("tcp", !settings.listen_ip.empty());
  serve("ucx", !settings.listen_ip.empty());
  serve("nixl", !settings.listen_ip.empty());
  serve("file", ::access(directory.c_str(), W_OK | X_OK) == 0);
  return gateway;
}

// The lane taken, if any, and every other with its reason.
struct Explained {
  const LaneOffer* chosen = nullptr;
  LaneReason reason = LaneReason::kPreferred;
  std::vector<Rejection> rejected;
};

Explained ExplainDecision(const LaneDecision& decision, Mode mode) {
  Explained out;
  out.rejected = decision.rejected;
  for (const LaneOffer& offer : decision.offers) {
    if (out.chosen == nullptr) {
      out.chosen = &offer;
      out.reason = decision.reason;
    } else {
      out.rejected.push_back({offer.lane, LaneReason::kOutranked});
    }
  }
  if (out.chosen == nullptr) {
    // The named lane's, or that of the lane which takes what no other does.
    const Lane lane = NamedLane(mode).value_or(Lane::kInline);
    for (const Rejection& r : out.rejected) {
      if (r.lane == lane) out.reason = r.reason;
    }
  }
  return out;
}

Json ValueOf(const Settings& settings, const SettingSpec& spec) {
  return std::visit(
      [&](const auto member) -> Json {
        using Value = std::remove_cvref_t<decltype(settings.*member)>;
        if constexpr (std::is_same_v<Value, bool> || std::is_same_v<Value, uint64_t>) {
          return settings.*member;
        }
        const std::string text = SettingText(settings, spec);
        return text.empty() ? Json(nullptr) : Json(text);
      },
      spec.member);
}

void Print(const Settings& settings, const LaneQuery& query, const Explained& explained,
           const ExplainOptions& options) {
  if (options.json) {
    Json rejected = Json::array();
    for (const Rejection& r : explained.rejected) {
      rejected.push_back({{"lane", LaneName(r.lane)}, {"reason", LaneReasonName(r.reason)}});
    }
    Json rows = Json::array();
    for (const SettingSpec& spec : SettingTable()) {
      rows.push_back({{"name", spec.name},
                      {"value", ValueOf(settings, spec)},
                      {"origin", settings.OriginOf(spec.name).ToString()}});
    }
    const LaneOffer* chosen = explained.chosen;
    PrintJson({{"lane", chosen ? Json(LaneName(chosen->lane)) : Json(nullptr)},
               {"transport", chosen ? Json(chosen->transports.front()) : Json(nullptr)},
               {"reason", LaneReasonName(explained.reason)},
               {"rejected", std::move(rejected)},
               {"settings", std::move(rows)}});
    return;
  }
  for (const SettingSpec& spec : SettingTable()) {
    PrintLine(absl::StrFormat("%-18s  %-12s  %s", AbslView(spec.name), SettingText(settings, spec),
                              settings.OriginOf(spec.name).ToString()));
  }
  PrintLine("");
  PrintLine(StrCat("a ", options.tensor, " tensor of ", query.tensor.nbytes, " bytes (",
                   options.modality, ", ", options.engine_proto, "):"));
  if (explained.chosen != nullptr) {
    PrintLine(StrCat("  lane ", LaneName(explained.chosen->lane), " over ",
                     explained.chosen->transports.front(), ": ", LaneReasonName(explained.reason),
                     ": ", LaneReasonMeaning(explained.reason)));
  } else {
    PrintLine("  no lane");
  }
  for (const Rejection& r : explained.rejected) {
    PrintLine(StrCat("  not ", tensorferry::Explain(query, r).substr(std::string("lane ").size())));
  }
}

// A setting that is wrong is wrong usage, wherever it stands.
int Refuse(const absl::Status& status, const ExplainOptions& options) {
  if (options.json) PrintErrorJson(status);
  const int code = Fail("explain", status);
  return ReasonOf(status) == Reason::kBadOption ? kUsage : code;
}

int ExplainAll(const ExplainOptions& options) {
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  const absl::StatusOr<Settings> router = options.settings.Parse(SettingEnd::kBoth);
  if (!router.ok()) return Refuse(router.status(), options);
  for (const std::string& warning : router->warnings) {
    PrintError("explain", std::string_view(warning));
  }
  const absl::StatusOr<WorkerInfo> worker = FindWorker(options);
  if (!worker.ok()) return Refuse(worker.status(), options);
  const absl::StatusOr<Settings> settings = ForWorker(*router, worker->overrides);
  if (!settings.ok()) return Refuse(settings.status(), options);

  const LanePolicy policy = PolicyOf(*settings);
  const GatewayFacts gateway = DescribeGateway(options, *settings);
  const LaneQuery query{policy,
                        gateway,
                        worker->capabilities,
                        {.nbytes = options.nbytes,
                         .engine = *ParseEngineProto(options.engine_proto),
                         .modality = *ParseModality(options.modality),
                         .role = *ParseTensorRole(options.tensor)}};
  const LaneDecision decision = DecideLanes(query);
  const Explained explained = ExplainDecision(decision, policy.mode);
  Print(*settings, query, explained, options);
  if (explained.chosen != nullptr) return kDone;
  return Fail("explain", NoLaneError(query, decision));
}

}  // namespace

void AddExplainCommand(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* verb = app.add_subcommand(
      "explain", "Say every setting and its origin, and which lane a tensor takes, and why");
  verb->footer(
      "Example:\n  tensorferry explain\n  SMG_MM_TENSOR_TRANSPORT=auto tensorferry explain "
      "--worker 127.0.0.1:50051 --nbytes 9437184\n\n"
      "Sends nothing and starts no gateway. Without a worker it is one that advertises nothing. "
      "Exits with 1 when\nno lane can be had, with 2 when a setting is wrong, wherever it stands.");
  verb->add_option("--engine-proto", options->engine_proto,
                   "the worker's engine: tokenspeed, vllm, sglang, trtllm or mlx")
      ->capture_default_str()
      ->check([](const std::string& text) { return UsageOf(ParseEngineProto(text).status()); });
  verb->add_option("--modality", options->modality, "image, video, audio or embeddings")
      ->capture_default_str()
      ->check([](const std::string& text) { return UsageOf(ParseModality(text).status()); });
  verb->add_option("--tensor", options->tensor, "main, the encoder's input, or side, any other")
      ->capture_default_str()
      ->check([](const std::string& text) { return UsageOf(ParseTensorRole(text).status()); });
  verb->add_option("--nbytes", options->nbytes, "size of the tensor")
      ->capture_default_str()
      ->check([](const std::string& text) { return UsageOf(ParseUnsigned(text).status()); });
  CLI::Option* worker = verb->add_option("--worker", options->worker,
                                         "HOST:PORT of a worker, which is asked what it takes");
  verb->add_option("--worker-info", options->worker_info,
                   "JSON file that says what a worker takes (docs/settings.md)")
      ->check(CLI::ExistingFile)
      ->excludes(worker);
  verb->add_option("--engine", options->engines,
                   "what the gateway serves: local, file, tcp, ucx, nixl")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::IsMember({"local", "file", "tcp", "ucx", "nixl"}));
  verb->add_option("--timeout", options->timeout, "seconds that --worker has to answer")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  verb->add_flag("--json", options->json, "one JSON object");
  options->settings.AddTo(verb);
  verb->callback([options, exit_code] { *exit_code = ExplainAll(*options); });
}

}  // namespace tensorferry::tools
