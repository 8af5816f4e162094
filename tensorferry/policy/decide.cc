#include "tensorferry/policy/decide.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_join.h"
#include "tensorferry/base/contains.h"
#include "tensorferry/base/text.h"

namespace tensorferry {
namespace {

struct Entry {
  std::string_view name;
  Reason error;
  std::string_view meaning;
};

constexpr Entry kTable[] = {
#define TENSORFERRY_X(id, name, error, meaning) {name, Reason::error, meaning},
    TENSORFERRY_LANE_REASONS(TENSORFERRY_X)
#undef TENSORFERRY_X
};

const Entry& Find(LaneReason reason) { return kTable[static_cast<size_t>(reason)]; }

constexpr std::array kAutoOrder = {Lane::kShm, Lane::kRemote, Lane::kInline};

std::vector<std::string> TransportsOf(Lane lane, const std::vector<std::string>& transports) {
  std::vector<std::string> out;
  for (const std::string& t : transports) {
    if (LaneOfTransport(t) == lane) out.push_back(t);
  }
  return out;
}

// What speaks against the message.
std::optional<LaneReason> AgainstInline(const LaneQuery& q) {
  if (!Contains(q.worker.lanes, Lane::kInline)) return LaneReason::kNotAdvertised;
  const uint64_t message = q.worker.max_inline_bytes;
  const uint64_t reserve = std::min(message, q.policy.message_reserve_bytes);
  if (message != 0 && q.tensor.nbytes > message - reserve) return LaneReason::kOverMaxInline;
  return std::nullopt;
}

// What speaks against a lease that the worker fetches by one of `served`.
std::optional<LaneReason> AgainstLease(const LaneQuery& q, Lane lane,
                                       const std::vector<std::string>& served, LaneOffer* offer) {
  if (q.tensor.unexported) return q.tensor.unexported;
  if (!Contains(q.worker.lanes, lane)) return LaneReason::kNotAdvertised;
  if (std::none_of(q.worker.descriptor_versions.begin(), q.worker.descriptor_versions.end(),
                   [&](uint32_t v) { return Contains(q.gateway.descriptor_versions, v); })) {
    return LaneReason::kNoCommonVersion;
  }
  for (const std::string& t : served) {
    if (Contains(q.worker.transports, t)) offer->transports.push_back(t);
  }
  if (offer->transports.empty()) return LaneReason::kNoCommonTransport;
  if (lane == Lane::kShm) {
    const HostIdentity& here = q.gateway.host;
    if (here.boot_id == BootId{} || here.boot_id != q.worker.host.boot_id) {
      return LaneReason::kOtherHost;
    }
    if (!here.uid || here.uid != q.worker.host.uid) return LaneReason::kUidDiffers;
  } else if (q.tensor.nbytes > q.worker.landing_bytes) {
    return LaneReason::kOverLanding;
  }
  return std::nullopt;
}

bool SharesShm(const LaneQuery& q) {
  const std::string& here = q.gateway.host.shm_namespace;
  return !here.empty() && here == q.worker.host.shm_namespace;
}

// What speaks against a file under /dev/shm. The arena has no part in it.
std::optional<LaneReason> AgainstFile(const LaneQuery& q) {
  const HostIdentity& here = q.gateway.host;
  const std::optional<uint32_t>& uid = q.worker.host.uid;
  if (q.tensor.file_failed) return LaneReason::kShmFailed;
  if (q.worker.stock()) {
    const bool vouched = q.policy.mode == Mode::kShm;
    if (!vouched && !SharesShm(q)) return LaneReason::kOtherHost;
    // A file's mode is 0600. Stock workers do not look at its owner, so that root reads it too.
    const bool readable = uid ? *uid == 0 || uid == here.uid : vouched;
    return readable ? std::nullopt : std::optional(LaneReason::kUidDiffers);
  }
  if (!Contains(q.worker.lanes, Lane::kShm)) return LaneReason::kNotAdvertised;
  if (!Contains(q.worker.transports, "file")) return LaneReason::kNoCommonTransport;
  if (!SharesShm(q)) return LaneReason::kOtherHost;
  if (!uid || uid != here.uid) return LaneReason::kUidDiffers;
  if (q.tensor.nbytes > q.worker.landing_bytes) return LaneReason::kOverLanding;
  return std::nullopt;
}

// What speaks against a READ over nixl: that is SMG's descriptor, whose version is not ours.
std::optional<LaneReason> AgainstNixl(const LaneQuery& q, LaneOffer* offer) {
  if (q.tensor.unexported) return q.tensor.unexported;
  const bool says_so =
      Contains(q.worker.lanes, Lane::kRemote) && Contains(q.worker.transports, "nixl");
  if (q.worker.stock() && !says_so) {
    // Of the stock workers only TokenSpeed's have a puller that does not say so.
    if (q.tensor.engine != EngineProto::kTokenSpeed) return LaneReason::kEngine;
    if (!q.policy.assume_pull) return LaneReason::kNotAdvertised;
    // How large its landing slots are is not known.
    offer->assumed = true;
    return q.tensor.against_nixl;
  }
  if (!Contains(q.worker.lanes, Lane::kRemote)) return LaneReason::kNotAdvertised;
  if (!Contains(q.worker.transports, "nixl")) return LaneReason::kNoCommonTransport;
  const bool unknown = q.worker.stock() && q.worker.landing_bytes == 0;
  if (!unknown && q.tensor.nbytes > q.worker.landing_bytes) return LaneReason::kOverLanding;
  return q.tensor.against_nixl;
}

// What speaks against a lane that the worker fetches from.
std::optional<LaneReason> AgainstFetching(const LaneQuery& q, Lane lane, LaneOffer* offer) {
  if (!TakesHandles(q.tensor.engine)) return LaneReason::kEngine;
  if (lane == Lane::kRemote && !q.policy.allow_remote) return LaneReason::kLaneOff;
  // What stock workers know; all else is ours.
  const bool shm = lane == Lane::kShm;
  const std::string_view stock = shm ? "file" : "nixl";
  std::vector<std::string> served = TransportsOf(lane, q.gateway.transports);
  const bool serves_stock = std::erase(served, stock) > 0;
  std::optional<LaneReason> against =
      TransportsOf(lane, q.gateway.starting).empty() ? LaneReason::kLaneOff : LaneReason::kStarting;
  if (!served.empty()) against = AgainstLease(q, lane, served, offer);
  if (!serves_stock) return against;
  if (against) offer->transports.clear();
  const std::optional<LaneReason> against_stock = shm ? AgainstFile(q) : AgainstNixl(q, offer);
  if (!against_stock) {
    offer->transports.emplace_back(stock);
    return std::nullopt;
  }
  const bool about_stock = served.empty() || q.worker.stock() || (shm && q.tensor.file_failed);
  return about_stock ? against_stock : against;
}

// Whether kAuto would rather have this tensor in the message, where it can go there.
std::optional<LaneReason> TooSmall(const LaneQuery& q, Lane lane) {
  const bool applies = q.policy.mode == Mode::kAuto || q.policy.always_minimum;
  if (!applies || lane == Lane::kInline || AgainstInline(q)) return std::nullopt;
  if (q.tensor.nbytes == 0) return LaneReason::kEmpty;
  const uint64_t minimum = lane == Lane::kShm ? q.policy.shm_min_bytes : q.policy.remote_min_bytes;
  if (q.tensor.nbytes < minimum) return LaneReason::kBelowMinimum;
  return std::nullopt;
}

// Whether the message is this tensor's place although the mode names another lane.
bool LeavesTheNamedLane(const LaneQuery& q, Lane named) {
  const bool side = q.tensor.role == TensorRole::kSide && named == Lane::kRemote;
  return side || TooSmall(q, named).has_value();
}

std::vector<Lane> LanesInOrder(Mode mode) {
  std::vector<Lane> order(kAutoOrder.begin(), kAutoOrder.end());
  if (const auto named = NamedLane(mode)) {
    const auto at = std::find(order.begin(), order.end(), *named);
    std::rotate(order.begin(), at, at + 1);
  }
  return order;
}

bool LiesInTheTensor(LaneReason reason) {
  switch (reason) {
    case LaneReason::kEmpty:
    case LaneReason::kBelowMinimum:
    case LaneReason::kArenaFull:
    case LaneReason::kDuplicateKey:
    case LaneReason::kOverLanding:
    case LaneReason::kOverMaxInline:
    case LaneReason::kShmFailed:
    case LaneReason::kPullFailed:
    case LaneReason::kResting:
    case LaneReason::kModality:
    case LaneReason::kSideTensor:
      return true;
    case LaneReason::kEngine:
    case LaneReason::kOutranked:
    case LaneReason::kAssumed:
    case LaneReason::kAgentRestarted:
    case LaneReason::kPreferred:
    case LaneReason::kMode:
    case LaneReason::kLaneOff:
    case LaneReason::kStarting:
    case LaneReason::kNotAdvertised:
    case LaneReason::kNoCommonTransport:
    case LaneReason::kNoCommonVersion:
    case LaneReason::kOtherHost:
    case LaneReason::kUidDiffers:
    case LaneReason::kShutDown:
      return false;
  }
  return false;
}

std::string UidText(const std::optional<uint32_t>& uid) { return uid ? StrCat(*uid) : "unknown"; }

LaneReason WhyFirst(const LaneQuery& q, const std::vector<Rejection>& better) {
  if (better.empty()) {
    return q.policy.mode == Mode::kAuto ? LaneReason::kPreferred : LaneReason::kMode;
  }
  // A named lane is the only one that the operator wants to hear about.
  if (q.policy.mode == Mode::kAuto) {
    for (const Rejection& r : better) {
      if (LiesInTheTensor(r.reason)) return r.reason;
    }
  }
  return better.front().reason;
}

// In the worker's own words, of what it was told to offer and this gateway has for the lane.
std::string WhyUnavailable(const LaneQuery& query, Lane lane) {
  std::string out;
  for (const auto& [transport, why] : query.worker.unavailable) {
    if (LaneOfTransport(transport) != lane) continue;
    if (!Contains(query.gateway.transports, transport)) continue;
    StrAppend(&out, "; the worker could not offer ", transport, ": ", why);
  }
  return out;
}

}  // namespace

std::string_view LaneReasonName(LaneReason reason) { return Find(reason).name; }
std::string_view LaneReasonMeaning(LaneReason reason) { return Find(reason).meaning; }

const LaneOffer* LaneDecision::Find(Lane lane) const {
  for (const LaneOffer& offer : offers) {
    if (offer.lane == lane) return &offer;
  }
  return nullptr;
}

LaneDecision DecideLanes(const LaneQuery& query) {
  LaneDecision decision;
  const auto named = NamedLane(query.policy.mode);
  const bool side = query.tensor.role == TensorRole::kSide;
  for (const Lane lane : LanesInOrder(query.policy.mode)) {
    LaneOffer offer{.lane = lane, .transports = {}};
    std::optional<LaneReason> against;
    if (!TakesModality(query.tensor.engine, query.tensor.modality)) {
      against = LaneReason::kModality;
    } else if (named && lane != *named && !query.policy.allow_fallback &&
               !(lane == Lane::kInline && LeavesTheNamedLane(query, *named))) {
      against = LaneReason::kMode;
    } else if (side && (lane == Lane::kRemote ||
                        (lane == Lane::kShm && query.policy.mode == Mode::kRemote))) {
      against = LaneReason::kSideTensor;
    } else if (const auto small = TooSmall(query, lane)) {
      against = small;
    } else if (lane == Lane::kInline) {
      against = AgainstInline(query);
      offer.transports = {"grpc"};
    } else {
      against = AgainstFetching(query, lane, &offer);
    }
    if (against) {
      decision.rejected.push_back({lane, *against});
      continue;
    }
    if (decision.offers.empty()) {
      decision.reason = offer.assumed ? LaneReason::kAssumed : WhyFirst(query, decision.rejected);
    }
    decision.offers.push_back(std::move(offer));
  }
  return decision;
}

std::string Explain(const LaneQuery& query, const Rejection& rejection) {
  const std::string_view lane = LaneName(rejection.lane);
  std::string why;
  switch (rejection.reason) {
    case LaneReason::kMode:
      why = StrCat("the mode is ", ModeName(query.policy.mode), " and allow_fallback is off");
      break;
    case LaneReason::kBelowMinimum: {
      const bool shm = rejection.lane == Lane::kShm;
      why = StrCat(query.tensor.nbytes, " bytes are below ",
                   shm ? "shm_min_bytes=" : "remote_min_bytes=",
                   shm ? query.policy.shm_min_bytes : query.policy.remote_min_bytes);
      break;
    }
    case LaneReason::kEngine:
      why = StrCat("workers of ", EngineProtoName(query.tensor.engine), " do not take the lane");
      break;
    case LaneReason::kModality:
      why = StrCat("backend ", EngineProtoName(query.tensor.engine), " does not support ",
                   ModalityName(query.tensor.modality), " inputs");
      break;
    case LaneReason::kLaneOff:
      if (rejection.lane == Lane::kRemote && !query.policy.allow_remote) {
        why = "the lane is not switched on: by mode remote, or SMG_MM_PIXEL_RDMA=1";
        break;
      }
      why = rejection.lane == Lane::kShm
                ? "this gateway serves no local memory: set ExporterOptions::local_socket, or "
                  "SenderOptions::files"
                : "this gateway listens on no address: set ExporterOptions::listen";
      break;
    case LaneReason::kStarting:
      why = StrCat("the gateway's ", absl::StrJoin(query.gateway.starting, ", "),
                   " does not run yet: Exporter::engines and the log say why");
      break;
    case LaneReason::kNotAdvertised:
      why = StrCat("the worker ", query.worker.stock() ? "(without GetCapabilities) " : "",
                   "offers only ",
                   absl::StrJoin(query.worker.lanes, ", ",
                                 [](std::string* out, Lane l) { out->append(LaneName(l)); }),
                   ": switch the lane on at the worker",
                   query.worker.stock() && rejection.lane == Lane::kRemote
                       ? ", or say with assume_pull that it fetches over nixl"
                       : "",
                   WhyUnavailable(query, rejection.lane));
      break;
    case LaneReason::kNoCommonTransport:
      why = StrCat("the gateway has ", absl::StrJoin(query.gateway.transports, ", "),
                   " and the worker ", absl::StrJoin(query.worker.transports, ", "),
                   ": enable one on both ends", WhyUnavailable(query, rejection.lane));
      break;
    case LaneReason::kNoCommonVersion:
      why = StrCat("the gateway writes descriptors of version ",
                   absl::StrJoin(query.gateway.descriptor_versions, ", "), ", the worker reads ",
                   absl::StrJoin(query.worker.descriptor_versions, ", "), ": update the older one");
      break;
    case LaneReason::kOtherHost:
      if (query.worker.stock()) {
        why =
            "nothing shows that the worker shares /dev/shm with this gateway: name the lane shm "
            "if you know that it does";
        break;
      }
      if (query.worker.host.boot_id == query.gateway.host.boot_id) {
        why =
            "the worker is on this host, but its /dev/shm is another one: share it between their "
            "containers";
        break;
      }
      why = StrCat("the worker's boot id is ", BootIdText(query.worker.host.boot_id),
                   ", this host's ", BootIdText(query.gateway.host.boot_id),
                   ": use remote between hosts");
      break;
    case LaneReason::kUidDiffers:
      why = StrCat("the worker runs as uid ", UidText(query.worker.host.uid), ", this gateway as ",
                   UidText(query.gateway.host.uid), ": run both as one user, or use remote");
      break;
    case LaneReason::kArenaFull:
      why = StrCat("the arena had no room for ", query.tensor.nbytes,
                   " bytes: raise ExporterOptions::arena_bytes");
      break;
    case LaneReason::kOverLanding:
      why = StrCat(query.tensor.nbytes, " bytes are over the worker's landing memory of ",
                   query.worker.landing_bytes, ": raise its landing_bytes");
      break;
    case LaneReason::kOverMaxInline:
      why = StrCat(query.tensor.nbytes, " bytes and ", query.policy.message_reserve_bytes,
                   " for the rest of the request are over the worker's max_inline_bytes of ",
                   query.worker.max_inline_bytes, ": raise its message limit");
      break;
    case LaneReason::kResting:
      why = StrCat(LaneReasonMeaning(rejection.reason),
                   ": raise ExporterOptions::arena_bytes, or see why workers give up");
      break;
    case LaneReason::kAgentRestarted:
      why = StrCat(LaneReasonMeaning(rejection.reason), ": restart the worker");
      break;
    case LaneReason::kAssumed:
    case LaneReason::kEmpty:
    case LaneReason::kDuplicateKey:
    case LaneReason::kShutDown:
    case LaneReason::kSideTensor:
    case LaneReason::kOutranked:
    case LaneReason::kShmFailed:
    case LaneReason::kPullFailed:
    case LaneReason::kPreferred:
      why = LaneReasonMeaning(rejection.reason);
      break;
  }
  return StrCat("lane ", lane, ": ", LaneReasonName(rejection.reason), ": ", why);
}

absl::Status NoLaneError(const LaneQuery& query, const LaneDecision& decision) {
  const auto named = NamedLane(query.policy.mode);
  std::string text;
  Reason reason = Reason::kLaneOff;
  for (const Rejection& r : decision.rejected) {
    if (r.reason == LaneReason::kMode) continue;
    // No matter of lanes.
    if (r.reason == LaneReason::kModality) return MakeError(Reason::kModality, Explain(query, r));
    StrAppend(&text, text.empty() ? "" : "; ", Explain(query, r));
    // The named lane's reason, or inline's: the lane that takes what no other does.
    if (r.lane == named.value_or(Lane::kInline)) reason = Find(r.reason).error;
  }
  return MakeError(reason, text);
}

bool InlineMayHelp(Reason failure) {
  switch (failure) {
    case Reason::kKeyMismatch:   // the request is about another tensor
    case Reason::kSizeMismatch:  // and so would the message's bytes be
    case Reason::kBadShape:
    case Reason::kUnknownDtype:
    case Reason::kNoPayload:
    case Reason::kCancelled:
    case Reason::kShutDown:  // the worker is going: another worker's business
      return false;
    default:
      return true;
  }
}

}  // namespace tensorferry
