// Which lanes may carry a tensor, in which order, and why not the others. No I/O, no state.
//
//   LaneDecision d = DecideLanes({policy, gateway, worker, {.nbytes = n}});
//   for (const LaneOffer& offer : d.offers) ...    // best first; empty: it cannot be sent
//   for (const Rejection& r : d.rejected) ...      // every other lane, with its reason
//
// Under Mode::kAuto: shared memory, then the network, then the message; small tensors go in the
// message. A named lane takes every size, and other lanes come into question only when the operator
// allows it. Files under /dev/shm come after the mapped arena; a stock worker is given one where
// the operator names the lane, which vouches for the two sharing a host, or where it has proven
// that they share /dev/shm and is known to run as a user who can read it. Every input of the
// decision is a field of the query, so that the whole table can be tested.
//
// Thread-safety: pure functions.
#ifndef TENSORFERRY_POLICY_DECIDE_H_
#define TENSORFERRY_POLICY_DECIDE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/export.h"
#include "tensorferry/base/host.h"
#include "tensorferry/policy/capabilities.h"
#include "tensorferry/policy/engine.h"
#include "tensorferry/policy/lane.h"

namespace tensorferry {

// X(enumerator, name, error when the lane was asked for by name, meaning)
// The names are metric labels and JSON values: add, never rename.
#define TENSORFERRY_LANE_REASONS(X)                                                              \
  X(kPreferred, "preferred", kLaneOff, "the best lane of all, and nothing speaks against it")    \
  X(kMode, "mode", kLaneOff, "the mode names the lane to take")                                  \
  X(kEmpty, "empty", kLaneOff, "a tensor without bytes is not worth a lane")                     \
  X(kBelowMinimum, "below_minimum", kLaneOff, "small tensors go in the message")                 \
  X(kLaneOff, "lane_off", kLaneOff, "this gateway serves no transport of the lane")              \
  X(kStarting, "starting", kLaneOff, "the gateway's engine for the lane does not run yet")       \
  X(kNotAdvertised, "not_advertised", kLaneOff, "the worker does not offer the lane")            \
  X(kNoCommonTransport, "no_common_transport", kNoCommonWay,                                     \
    "gateway and worker have no transport of the lane in common")                                \
  X(kNoCommonVersion, "no_common_version", kUnknownVersion,                                      \
    "gateway and worker share no version of the descriptor")                                     \
  X(kOtherHost, "other_host", kOtherHost, "the worker is not known to be on this host")          \
  X(kUidDiffers, "uid_differs", kUidMismatch, "the worker runs as another user")                 \
  X(kArenaFull, "arena_full", kArenaFull, "the arena had no room when the tensor was staged")    \
  X(kDuplicateKey, "duplicate_key", kDuplicateKey, "a live lease has the same key")              \
  X(kShutDown, "shut_down", kShutDown, "the exporter is closing")                                \
  X(kAssumed, "assumed", kLaneOff, "the operator says that this stock worker can fetch it")      \
  X(kResting, "resting", kArenaFull, "much of the arena rests after READs that may not be over") \
  X(kAgentRestarted, "agent_restarted", kLaneOff,                                                \
    "the agent was started anew, and a stock worker never reads from a second one")              \
  X(kOverLanding, "over_landing", kTooLarge, "larger than the worker's landing memory")          \
  X(kOverMaxInline, "over_max_inline", kTooLarge, "larger than the worker takes in a message")   \
  X(kShmFailed, "shm_failed", kNoMemory, "the file under /dev/shm could not be written")         \
  X(kPullFailed, "pull_failed", kLaneOff, "the worker could not fetch it, and said so")          \
  X(kEngine, "engine", kLaneOff, "workers of this engine do not take the lane")                  \
  X(kModality, "modality", kModality, "workers of this engine take no such inputs")              \
  X(kSideTensor, "side_tensor", kLaneOff, "only main tensors go over the network")               \
  X(kOutranked, "outranked", kLaneOff, "possible too, but a better lane is")

enum class LaneReason : uint8_t {
#define TENSORFERRY_X(id, name, error, meaning) id,
  TENSORFERRY_LANE_REASONS(TENSORFERRY_X)
#undef TENSORFERRY_X
};

// "arena_full" and so on.
TENSORFERRY_EXPORT std::string_view LaneReasonName(LaneReason reason);
TENSORFERRY_EXPORT std::string_view LaneReasonMeaning(LaneReason reason);

// What the operator set.
struct LanePolicy {
  Mode mode = Mode::kAuto;
  // With a named lane: take another one rather than fail.
  bool allow_fallback = false;
  // Smaller tensors go in the message: under Mode::kAuto, and with `always_minimum` also under a
  // named lane.
  uint64_t shm_min_bytes = 65536;
  uint64_t remote_min_bytes = 65536;
  bool always_minimum = false;
  // Lane remote may be taken, where the gateway serves it.
  bool allow_remote = true;
  // This stock worker fetches over nixl, although it does not say so.
  bool assume_pull = false;
  // Kept free for the rest of the request, of what the worker takes in one message.
  uint64_t message_reserve_bytes = 65536;
};

struct GatewayFacts {
  HostIdentity host = {};
  // Of the exporter's running engines, best first; "file" where files can be written.
  std::vector<std::string> transports = {};
  // Of engines that do not run yet.
  std::vector<std::string> starting = {};
  std::vector<uint32_t> descriptor_versions = {};
};

struct TensorFacts {
  uint64_t nbytes = 0;
  // Why workers cannot fetch this one, although engines run: arena_full, duplicate_key, shut_down.
  std::optional<LaneReason> unexported = {};
  // Why it is not to be had over nixl: resting, agent_restarted.
  std::optional<LaneReason> against_nixl = {};
  // A file was tried, and could not be written.
  bool file_failed = false;
  // Whose message it goes into, and as what.
  EngineProto engine = EngineProto::kTokenSpeed;
  Modality modality = Modality::kImage;
  TensorRole role = TensorRole::kMain;
};

// Everything that a decision depends on. References: for the time of a call.
struct LaneQuery {
  const LanePolicy& policy;
  const GatewayFacts& gateway;
  const Capabilities& worker;
  TensorFacts tensor;
};

struct LaneOffer {
  Lane lane = Lane::kInline;
  std::vector<std::string> transports = {};  // common to both ends, in the gateway's order
  bool assumed = false;                      // the worker does not say so
  friend bool operator==(const LaneOffer&, const LaneOffer&) = default;
};

struct Rejection {
  Lane lane = Lane::kInline;
  LaneReason reason = LaneReason::kLaneOff;
  friend bool operator==(const Rejection&, const Rejection&) = default;
};

struct TENSORFERRY_EXPORT LaneDecision {
  std::vector<LaneOffer> offers;
  std::vector<Rejection> rejected;
  // Why the first offer is the first: kMode, kPreferred, or what spoke against a better lane (a
  // reason that lies in this tensor before one that lies in the set-up).
  LaneReason reason = LaneReason::kPreferred;

  const LaneOffer* Find(Lane lane) const;  // null when it is not offered
};

TENSORFERRY_EXPORT LaneDecision DecideLanes(const LaneQuery& query);

// One line for people: the values behind the rejection, and the setting to turn.
TENSORFERRY_EXPORT std::string Explain(const LaneQuery& query, const Rejection& rejection);
// The error of a decision without offers: what spoke against the named lane, or against every one
// under kAuto.
TENSORFERRY_EXPORT absl::Status NoLaneError(const LaneQuery& query, const LaneDecision& decision);

// Whether the same bytes, sent in the message, may be taken by a worker whose pull ended with
// `failure`. False for what inline bytes would meet again (a shape that does not fit), and for what
// is not about the lane.
TENSORFERRY_EXPORT bool InlineMayHelp(Reason failure);

}  // namespace tensorferry

#endif  // TENSORFERRY_POLICY_DECIDE_H_
