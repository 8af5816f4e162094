#include "tensorferry/policy/lane.h"

#include <string>

#include "absl/strings/ascii.h"
#include "tensorferry/base/text.h"

namespace tensorferry {
namespace {

std::string Word(std::string_view text) {
  return absl::AsciiStrToLower(absl::StripAsciiWhitespace(AbslView(text)));
}

std::optional<Lane> FindLane(std::string_view word) {
  // SMG calls the lane by its first transport.
  if (word == "rdma") return Lane::kRemote;
  for (const Lane lane : kAllLanes) {
    if (word == LaneName(lane)) return lane;
  }
  return std::nullopt;
}

}  // namespace

std::string_view LaneName(Lane lane) {
  switch (lane) {
    case Lane::kInline:
      return "inline";
    case Lane::kShm:
      return "shm";
    case Lane::kRemote:
      return "remote";
  }
  return "";
}

absl::StatusOr<Lane> ParseLane(std::string_view text) {
  if (const auto lane = FindLane(Word(text))) return *lane;
  return absl::InvalidArgumentError(
      StrCat("lane \"", text, "\" is none of inline, shm, remote (or its alias rdma)"));
}

std::optional<Lane> LaneOfTransport(std::string_view transport) {
  if (transport == "grpc") return Lane::kInline;
  if (transport == "local" || transport == "file") return Lane::kShm;
  if (transport == "tcp" || transport == "ucx" || transport == "nixl") return Lane::kRemote;
  return std::nullopt;
}

std::string_view ModeName(Mode mode) {
  const auto lane = NamedLane(mode);
  return lane ? LaneName(*lane) : "auto";
}

absl::StatusOr<Mode> ParseMode(std::string_view text) {
  const std::string word = Word(text);
  if (word == "auto") return Mode::kAuto;
  if (const auto lane = FindLane(word)) return ModeOf(*lane);
  return absl::InvalidArgumentError(
      StrCat("mode \"", text, "\" is none of auto, inline, shm, remote (or its alias rdma)"));
}

Mode ModeOf(Lane lane) {
  switch (lane) {
    case Lane::kInline:
      return Mode::kInline;
    case Lane::kShm:
      return Mode::kShm;
    case Lane::kRemote:
      return Mode::kRemote;
  }
  return Mode::kInline;
}

std::optional<Lane> NamedLane(Mode mode) {
  switch (mode) {
    case Mode::kAuto:
      return std::nullopt;
    case Mode::kInline:
      return Lane::kInline;
    case Mode::kShm:
      return Lane::kShm;
    case Mode::kRemote:
      return Lane::kRemote;
  }
  return std::nullopt;
}

}  // namespace tensorferry
