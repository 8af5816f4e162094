#include "tools/pull_command.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/contains.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/puller/puller.h"
#include "tensorferry/wire/bytes.h"
#include "tensorferry/wire/descriptor.h"
#include "tools/file_io.h"
#include "tools/hex.h"
#include "tools/library_engines.h"
#include "tools/output.h"
#include "tools/seconds.h"
#include "tools/sha256.h"

namespace tensorferry::tools {
namespace {

struct PullArguments {
  std::string transport = "tensorferry";
  std::string descriptor;  // hex
  uint64_t nbytes = 0;
  std::optional<int64_t> key;
  std::string out;
  double timeout = 5;
  std::vector<std::string> allow;
  std::vector<std::string> engines = {"local", "tcp"};
  EngineFlags flags;
  bool json = false;
};

struct Pulled {
  uint64_t nbytes = 0;
  std::string sha256;
  double seconds = 0;
  std::string transport;
};

absl::StatusOr<Pulled> Fetch(const PullArguments& arguments) {
  const Handle handle = {.transport = arguments.transport,
                         .descriptor = *FromHex(arguments.descriptor),
                         .nbytes = arguments.nbytes};
  // Before memory is taken for a size that the descriptor contradicts.
  const absl::StatusOr<wire::Descriptor> descriptor = DecodeHandle(handle, arguments.key);
  if (!descriptor.ok()) return descriptor.status();
  PullerOptions options;
  // And what stands around the payload of a READ.
  constexpr uint64_t kMargin = 4096;
  options.landing_bytes = handle.nbytes <= UINT64_MAX - kMargin ? handle.nbytes + kMargin : 0;
  options.prefault = false;
  options.log = PrintLog("pull");
  if (!arguments.allow.empty()) options.allow = *AllowList::Parse(arguments.allow);
  std::vector<std::string> engines = arguments.engines;
  if (arguments.transport == "nixl") engines = {"nixl"};
  options.local = Contains(engines, "local");
  options.tcp = Contains(engines, "tcp");
  Unavailable unavailable(options.log);
  for (auto& engine :
       OpenPullLibraries({.transports = engines, .flags = arguments.flags, .log = options.log},
                         options.allow, &unavailable)) {
    options.engines.push_back(std::move(engine));
  }
  const bool none_left = options.engines.empty() && !options.local && !options.tcp;
  if (absl::Status s = unavailable.Settle(none_left); !s.ok()) return s;
  absl::StatusOr<std::unique_ptr<Puller>> puller = Puller::Create(std::move(options));
  if (!puller.ok()) return puller.status();

  const RealClock clock;
  const Instant began = clock.Now();
  const absl::StatusOr<View> view =
      (*puller)->Pull(handle, {.timeout = ToDuration(arguments.timeout), .key = arguments.key});
  const Duration took = clock.Now() - began;
  if (!view.ok()) return view.status();
  Pulled pulled = {.nbytes = view->bytes().size(),
                   .sha256 = Hex(Sha256(view->bytes())),
                   .seconds = std::chrono::duration<double>(took).count(),
                   .transport = std::string(view->transport())};
  if (!arguments.out.empty()) {
    const std::span<const std::byte> parts[] = {view->bytes()};
    if (absl::Status status = WriteFile(arguments.out, parts); !status.ok()) return status;
  }
  return pulled;
}

int Pull(const PullArguments& arguments) {
  const absl::StatusOr<Pulled> pulled = Fetch(arguments);
  if (!pulled.ok()) {
    if (arguments.json) PrintErrorJson(pulled.status());
    return Fail("pull", pulled.status());
  }
  if (arguments.json) {
    PrintJson({{"nbytes", pulled->nbytes},
               {"sha256", pulled->sha256},
               {"seconds", pulled->seconds},
               {"transport", pulled->transport}});
  } else {
    PrintLine(absl::StrFormat("%d bytes over %s in %.3f ms, sha256 %s", pulled->nbytes,
                              pulled->transport, pulled->seconds * 1e3, pulled->sha256));
  }
  return kDone;
}

}  // namespace

void AddPullCommand(CLI::App& app, int* exit_code) {
  auto arguments = std::make_shared<PullArguments>();
  CLI::App* verb = app.add_subcommand("pull", "Fetch what a descriptor names");
  verb->footer(
      "Example:\n  tensorferry pull --transport tensorferry --descriptor 54464552… --nbytes "
      "9437184 "
      "--out tensor.bin\n\n"
      "The descriptor comes from `tensorferry export`. With --json, one line: nbytes, sha256, "
      "seconds, transport (what\ncarried the bytes), or error, code, retryable.");
  verb->add_option("--transport", arguments->transport,
                   "kind of descriptor: tensorferry, or nixl (SMG's)")
      ->required()
      ->check(CLI::IsMember({"tensorferry", "nixl"}));
  verb->add_option("--descriptor", arguments->descriptor, "the descriptor, in hexadecimal")
      ->required()
      ->check([](const std::string& text) { return UsageOf(FromHex(text).status()); });
  verb->add_option("--nbytes", arguments->nbytes, "how many bytes it names")
      ->required()
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--key", arguments->key, "the key that the bytes must have");
  verb->add_option("--out", arguments->out, "file to write the bytes to");
  verb->add_option("--timeout", arguments->timeout, "seconds for all of it")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  verb->add_option("--allow", arguments->allow,
                   "networks (CIDR) that may be dialled (default: 127.0.0.0/8 and ::1)")
      ->check([](const std::string& text) { return UsageOf(AllowList::Parse({text}).status()); });
  verb->add_option("--engine", arguments->engines,
                   "what a tensorferry descriptor is pulled over: local, tcp, ucx")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::IsMember({"local", "tcp", "ucx"}));
  AddNixlFlags(verb, &arguments->flags.nixl);
  AddUcxFlags(verb, &arguments->flags.ucx);
  verb->add_flag("--json", arguments->json, "one JSON object");
  verb->callback([arguments, exit_code] { *exit_code = Pull(*arguments); });
}

}  // namespace tensorferry::tools
