#include "tools/doctor_command.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/base/version.h"
#include "tools/doctor/examination.h"
#include "tools/doctor/report.h"
#include "tools/output.h"
#include "tools/seconds.h"
#include "tools/setting_flags.h"

namespace tensorferry::tools {
namespace {

struct DoctorOptions {
  ExaminationOptions examination;
  double timeout = 5;
  std::vector<std::string> require;
  bool json = false;
  SettingFlags settings;
};

// Said on standard error, so that it stands beside a report for programs too.
bool LacksRequired(const std::vector<Finding>& findings, const DoctorOptions& options) {
  bool lacks = false;
  for (const std::string& name : options.require) {
    const Lane lane = *ParseLane(name);
    if (VerdictOf(findings, lane) != Verdict::kOff) continue;
    lacks = true;
    PrintError("doctor", MakeError(Reason::kLaneOff,
                                   StrCat("lane ", LaneName(lane), " is required, and is off")));
  }
  return lacks;
}

int Examine(const DoctorOptions& options) {
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  // gRPC 1.51 may wait 10 s for its own poller when the last of its objects goes, which would be
  // after each transfer: keep one until the end.
  grpc_init();
  const absl::StatusOr<Settings> settings = options.settings.Parse(SettingEnd::kBoth);
  if (!settings.ok()) {
    if (options.json) PrintErrorJson(settings.status());
    Fail("doctor", settings.status());
    return kUsage;
  }
  for (const std::string& warning : settings->warnings) {
    PrintError("doctor", std::string_view(warning));
  }
  const std::vector<Finding> findings = Examine(options.examination, *settings);
  if (options.json) {
    PrintJson(JsonReport(findings));
  } else {
    const std::string& peer = options.examination.peer;
    for (const std::string& line : HumanReport(
             StrCat("tensorferry ", Version(), peer.empty() ? ", on this host" : ", to ", peer),
             findings)) {
      PrintLine(line);
    }
  }
  const bool all_off = std::all_of(kAllLanes.begin(), kAllLanes.end(), [&](Lane lane) {
    return VerdictOf(findings, lane) == Verdict::kOff;
  });
  return LacksRequired(findings, options) || all_off ? kFailed : kDone;
}

}  // namespace

void AddDoctorCommand(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<DoctorOptions>();
  ExaminationOptions& examination = options->examination;
  const std::vector<std::string> transports = examination.transports;
  CLI::App* verb =
      app.add_subcommand("doctor", "Try every lane, and say what to do about those that are off");
  verb->footer(
      "Example:\n  tensorferry doctor\n  tensorferry doctor --peer 127.0.0.1:50051 --require "
      "shm,remote\n\n"
      "Sends real tensors over each lane: to the worker --peer, and to a worker in this process, "
      "which shows what this\nhost can receive. Then looks at limits, devices, and settings "
      "(docs/settings.md) that disagree. What each finding\nmeans is in docs/doctor.md. Exits with "
      "1 when a required lane is off, or all are.");
  verb->add_option("--peer", examination.peer, "HOST:PORT of a worker");
  verb->add_option("--require", options->require, "lanes without which to exit with 1")
      ->delimiter(',')
      ->check([](const std::string& text) { return UsageOf(ParseLane(text).status()); });
  verb->add_option("--engine", examination.transports,
                   StrCat("what shm and remote are tried over: ", absl::StrJoin(transports, ", ")))
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::IsMember(transports));
  AddNixlExportFlags(verb, &examination.flags.nixl);
  AddUcxExportFlags(verb, &examination.flags.ucx);
  verb->add_option("--listen", examination.listen,
                   "IP:PORT where the peer fetches from (default: listen_ip, else the address of "
                   "the route to it; a free port)");
  verb->add_option("--timeout", options->timeout, "seconds for each test")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  verb->add_flag("--json", options->json, "one JSON object");
  options->settings.AddTo(verb);
  verb->callback([options, exit_code] {
    options->examination.timeout = ToDuration(options->timeout);
    *exit_code = Examine(*options);
  });
}

}  // namespace tensorferry::tools
