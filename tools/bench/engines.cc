#include "tools/bench/engines.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry::tools::bench {

const std::vector<Engine>& Engines() {
  static const std::vector<Engine> engines = {
      {.name = "grpc", .lane = Lane::kInline, .transport = "grpc"},
      {.name = "local", .lane = Lane::kShm, .transport = "local"},
      {.name = "file", .lane = Lane::kShm, .transport = "file"},
      {.name = "tcp", .lane = Lane::kRemote, .transport = "tcp"},
      {.name = "ucx", .lane = Lane::kRemote, .transport = "ucx"},
      {.name = "ucx-get", .lane = Lane::kRemote, .transport = "ucx"},
      {.name = "nixl", .lane = Lane::kRemote, .transport = "nixl"},
      {.name = "sockets", .lane = Lane::kRemote, .transport = "sockets", .yardstick = true},
      {.name = "sockets-blocking",
       .lane = Lane::kRemote,
       .transport = "sockets",
       .yardstick = true},
      {.name = "memcpy", .lane = Lane::kShm, .transport = "memcpy", .yardstick = true}};
  return engines;
}

std::vector<std::string> EngineNames() {
  std::vector<std::string> names;
  for (const Engine& engine : Engines()) names.push_back(engine.name);
  return names;
}

std::optional<Engine> FindEngine(std::string_view name) {
  const auto found = std::ranges::find(Engines(), name, &Engine::name);
  if (found == Engines().end()) return std::nullopt;
  return *found;
}

absl::Status NoEngine(std::string_view name) {
  return MakeError(Reason::kBadOption, StrCat("no engine is called ", name, "; there are ",
                                              absl::StrJoin(EngineNames(), ", ")));
}

std::string FormatRange(const BareRange& range) {
  return StrCat(range.server.ToString(), " ", range.offset);
}

absl::StatusOr<BareRange> ParseRange(std::string_view text) {
  const size_t space = text.find(' ');
  BareRange range;
  const absl::StatusOr<SocketAddress> server = SocketAddress::Parse(text.substr(0, space));
  if (space == std::string_view::npos || !server.ok() ||
      !absl::SimpleAtoi(AbslView(text.substr(space + 1)), &range.offset)) {
    return MakeError(Reason::kProtocol, StrCat("no range of bare sockets: ", std::string(text)));
  }
  range.server = *server;
  return range;
}

}  // namespace tensorferry::tools::bench
