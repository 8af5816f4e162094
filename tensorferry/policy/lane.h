// The words for how a tensor travels, as they appear in settings, JSON, labels and logs.
//
//   Lane lane = *ParseLane("rdma");             // kRemote; "remote" is its name
//   Mode mode = *ParseMode("auto");
//   LaneOfTransport("tcp");                     // kRemote
//
// A lane is how a tensor travels: in the message, through memory of the same host, or pulled over a
// network. A transport is what carried it: "grpc"; "local" or "file"; "tcp", "ucx" or "nixl".
//
// Thread-safety: pure functions.
#ifndef TENSORFERRY_POLICY_LANE_H_
#define TENSORFERRY_POLICY_LANE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "tensorferry/base/export.h"

namespace tensorferry {

enum class Lane : uint8_t { kInline, kShm, kRemote };
inline constexpr std::array kAllLanes = {Lane::kInline, Lane::kShm, Lane::kRemote};

// Every transport there is a word for.
inline constexpr std::array<std::string_view, 6> kAllTransports = {"grpc", "local", "file",
                                                                   "tcp",  "ucx",   "nixl"};

// "inline", "shm", "remote".
TENSORFERRY_EXPORT std::string_view LaneName(Lane lane);
// The names, and "rdma" for remote; trimmed, any case. Otherwise an InvalidArgument that lists
// them.
TENSORFERRY_EXPORT absl::StatusOr<Lane> ParseLane(std::string_view text);
// None for a word that is no transport.
TENSORFERRY_EXPORT std::optional<Lane> LaneOfTransport(std::string_view transport);

// What the operator asked for: the best lane there is, or one by name.
enum class Mode : uint8_t { kAuto, kInline, kShm, kRemote };

TENSORFERRY_EXPORT std::string_view ModeName(Mode mode);
// As ParseLane, and "auto".
TENSORFERRY_EXPORT absl::StatusOr<Mode> ParseMode(std::string_view text);
// That names it.
TENSORFERRY_EXPORT Mode ModeOf(Lane lane);
// None for kAuto.
TENSORFERRY_EXPORT std::optional<Lane> NamedLane(Mode mode);

}  // namespace tensorferry

#endif  // TENSORFERRY_POLICY_LANE_H_
