// The lanes that SMG's gateway takes, row for row, and ours: docs/lanes.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tensorferry/base/text.h"
#include "tensorferry/policy/decide.h"
#include "tensorferry/policy/settings.h"

namespace tensorferry {
namespace {

constexpr uint64_t kLarge = 9 << 20, kSmall = 1000;
constexpr BootId kBoot = {1, 2, 3};

enum class Where { kHere, kElsewhere };
// kPuller: a TokenSpeed worker, whose puller the operator vouches for; a vLLM worker that says that
// it pulls. kPlain: neither.
enum class Worker { kPlain, kPuller };

GatewayFacts Gateway(bool lane_on) {
  GatewayFacts gateway{.host = {.boot_id = kBoot, .uid = 7, .shm_namespace = "b:26"},
                       .transports = {"local", "file"},
                       .descriptor_versions = {1}};
  if (lane_on) gateway.transports.insert(gateway.transports.end(), {"tcp", "nixl"});
  return gateway;
}

struct Case {
  EngineProto engine;
  std::string mode;
  bool lane_on;
  Where where;
  Worker worker;
  TensorRole role;
  uint64_t nbytes;

  std::string Text() const {
    return StrCat(EngineProtoName(engine), " mode ", mode, lane_on ? " lane on" : " lane off",
                  where == Where::kHere ? " here" : " elsewhere",
                  worker == Worker::kPuller ? " puller " : " plain ", TensorRoleName(role), " ",
                  nbytes);
  }
};

// The reference, as it decides. Its lane is on for all workers or none; TokenSpeed's never say that
// they pull.
Lane Theirs(const Case& c) {
  const bool main = c.role == TensorRole::kMain;
  const bool pulls = c.engine == EngineProto::kTokenSpeed || c.worker == Worker::kPuller;
  const bool remote = main && c.lane_on && pulls;
  const bool shm =
      (c.mode == "shm" || (c.mode == "auto" && c.where == Where::kHere)) && c.nbytes >= 65536;
  // TokenSpeed's tensors are written into shared memory before anything else is asked.
  if (c.engine == EngineProto::kTokenSpeed && shm) return Lane::kShm;
  if (remote) return Lane::kRemote;
  return shm ? Lane::kShm : Lane::kInline;
}

LaneDecision Decide(const Case& c) {
  SettingSources sources{.flags = {{"multimodal-tensor-transport", c.mode}}};
  if (c.lane_on)
    sources.flags.insert(sources.flags.end(),
                         {{"mm-pixel-rdma", "true"}, {"rdma-listen-ip", "10.0.0.5"}});
  if (c.worker == Worker::kPuller && c.engine == EngineProto::kTokenSpeed) {
    sources.flags.emplace_back("assume-pull", "true");
  }
  const LanePolicy policy = PolicyOf(*ParseSettings(sources));
  Capabilities worker;
  worker.host.uid = 7;
  worker.host.shm_namespace = c.where == Where::kHere ? "b:26" : "c:26";
  if (c.worker == Worker::kPuller && c.engine == EngineProto::kVllm) {
    worker.lanes.push_back(Lane::kRemote);
    worker.transports.emplace_back("nixl");
  }
  const GatewayFacts gateway = Gateway(c.lane_on);
  return DecideLanes(
      {policy, gateway, worker, {.nbytes = c.nbytes, .engine = c.engine, .role = c.role}});
}

// Where ours is another lane than the reference's, and what for.
enum class For { kMinimumAndOrder, kWorkersThatPull, kProvenMemory };
struct Departure {
  Lane ours;
  For what;
};

std::optional<Departure> DepartureOf(const Case& c) {
  const bool main = c.role == TensorRole::kMain;
  if (!main) return std::nullopt;
  const Lane theirs = Theirs(c);
  const bool large = c.nbytes >= 65536;
  if (theirs == Lane::kRemote) {
    // A handle for a worker of which nobody says that it can pull.
    const bool unsaid = c.worker == Worker::kPlain;
    // One order of lanes, for both engines: shared memory first.
    const bool shm = large && (c.mode == "shm" || (c.mode == "auto" && c.where == Where::kHere));
    // Beside the switch inline is no mode but the default; and mode rdma falls back to proven memory.
    const bool proven =
        large && c.where == Where::kHere && (c.mode == "rdma" || c.mode == "inline");
    if (!large) return Departure{Lane::kInline, For::kMinimumAndOrder};
    if (unsaid)
      return proven ? Departure{Lane::kShm, For::kProvenMemory}
                    : Departure{Lane::kInline, For::kWorkersThatPull};
    if (shm) return Departure{Lane::kShm, For::kMinimumAndOrder};
    return std::nullopt;
  }
  // vLLM's that do not pull.
  const bool lane = c.lane_on && (c.mode == "rdma" || c.mode == "inline");
  if (theirs == Lane::kInline && lane && large && c.where == Where::kHere) {
    return Departure{Lane::kShm, For::kProvenMemory};
  }
  return std::nullopt;
}

std::vector<Case> WholeTable() {
  std::vector<Case> out;
  for (const EngineProto engine : {EngineProto::kTokenSpeed, EngineProto::kVllm}) {
    for (const std::string mode : {"inline", "shm", "auto", "rdma"}) {
      for (const bool on : {false, true}) {
        // Mode rdma is the switch.
        if (mode == "rdma" && !on) continue;
        for (const Where where : {Where::kHere, Where::kElsewhere}) {
          for (const Worker worker : {Worker::kPlain, Worker::kPuller}) {
            for (const TensorRole role : {TensorRole::kMain, TensorRole::kSide}) {
              for (const uint64_t nbytes : {kSmall, uint64_t{65535}, uint64_t{65536}, kLarge}) {
                out.push_back({engine, mode, on, where, worker, role, nbytes});
              }
            }
          }
        }
      }
    }
  }
  return out;
}

TEST(LaneTable, EveryRowIsTheReferencesOrADepartureOnPurpose) {
  std::map<For, size_t> departures;
  for (const Case& c : WholeTable()) {
    const LaneDecision d = Decide(c);
    ASSERT_FALSE(d.offers.empty()) << c.Text();
    const std::optional<Departure> departure = DepartureOf(c);
    const Lane wanted = departure ? departure->ours : Theirs(c);
    EXPECT_EQ(LaneName(d.offers.front().lane), LaneName(wanted))
        << c.Text() << ", theirs " << LaneName(Theirs(c));
    if (departure) {
      ++departures[departure->what];
      EXPECT_NE(departure->ours, Theirs(c)) << c.Text();
    }
    // Every lane has its place or its reason.
    EXPECT_EQ(d.offers.size() + d.rejected.size(), kAllLanes.size()) << c.Text();
    // The message is always left.
    EXPECT_NE(d.Find(Lane::kInline), nullptr) << c.Text();
  }
  EXPECT_EQ(WholeTable().size(), 2u * 7 * 2 * 2 * 2 * 4);
  EXPECT_THAT(departures, testing::SizeIs(3));
}

// The same, in plain sight: one line of the reference's table each.
struct Line {
  const char* mode;
  bool lane_on;
  Where where;
  Lane tokenspeed, vllm, side;
};

TEST(LaneTable, LargeTensorsOfWorkersThatPull) {
  constexpr Lane kInline = Lane::kInline, kShm = Lane::kShm, kRemote = Lane::kRemote;
  const Line lines[] = {
      {"inline", false, Where::kHere, kInline, kInline, kInline},
      {"inline", true, Where::kElsewhere, kRemote, kRemote, kInline},
      {"shm", false, Where::kElsewhere, kShm, kShm, kShm},  // the operator vouches
      {"shm", true, Where::kHere, kShm, kShm, kShm},
      {"auto", false, Where::kHere, kShm, kShm, kShm},
      {"auto", true, Where::kHere, kShm, kShm, kShm},
      {"auto", false, Where::kElsewhere, kInline, kInline, kInline},
      {"auto", true, Where::kElsewhere, kRemote, kRemote, kInline},
      {"rdma", true, Where::kHere, kRemote, kRemote, kInline},
      {"rdma", true, Where::kElsewhere, kRemote, kRemote, kInline},
  };
  for (const Line& line : lines) {
    const auto lane = [&](EngineProto engine, TensorRole role) {
      const Case c{engine, line.mode, line.lane_on, line.where, Worker::kPuller, role, kLarge};
      return Decide(c).offers.front().lane;
    };
    EXPECT_EQ(lane(EngineProto::kTokenSpeed, TensorRole::kMain), line.tokenspeed) << line.mode;
    EXPECT_EQ(lane(EngineProto::kVllm, TensorRole::kMain), line.vllm) << line.mode;
    EXPECT_EQ(lane(EngineProto::kTokenSpeed, TensorRole::kSide), line.side) << line.mode;
    EXPECT_EQ(lane(EngineProto::kVllm, TensorRole::kSide), line.side) << line.mode;
  }
}

std::optional<LaneReason> Why(const LaneDecision& d, Lane lane) {
  for (const Rejection& r : d.rejected) {
    if (r.lane == lane) return r.reason;
  }
  return std::nullopt;
}

TEST(LaneTable, SideTensorsNeverGoOverTheNetwork) {
  for (Case c : WholeTable()) {
    if (c.role != TensorRole::kSide) continue;
    const LaneDecision d = Decide(c);
    EXPECT_EQ(d.Find(Lane::kRemote), nullptr) << c.Text();
    if (c.mode == "rdma") {
      EXPECT_EQ(d.offers.front().lane, Lane::kInline) << c.Text();
      EXPECT_EQ(Why(d, Lane::kShm), LaneReason::kSideTensor) << c.Text();
      EXPECT_EQ(Why(d, Lane::kRemote), LaneReason::kSideTensor) << c.Text();
    }
  }
}

TEST(LaneTable, ASideTensorUnderANamedLaneGoesInTheMessage) {
  const LanePolicy policy{.mode = Mode::kRemote};
  const GatewayFacts gateway = Gateway(true);
  const Capabilities worker{.lanes = {Lane::kInline, Lane::kRemote}, .transports = {"grpc", "tcp"}};
  const LaneDecision d =
      DecideLanes({policy, gateway, worker, {.nbytes = kLarge, .role = TensorRole::kSide}});
  ASSERT_FALSE(d.offers.empty());
  EXPECT_EQ(d.offers.front().lane, Lane::kInline);
}

TEST(LaneTable, StockVllmWorkersNeverPull) {
  const Case c{EngineProto::kVllm, "rdma", true, Where::kElsewhere, Worker::kPlain,
               TensorRole::kMain,  kLarge};
  EXPECT_EQ(Why(Decide(c), Lane::kRemote), LaneReason::kEngine);
  // Nor does the operator's word help: that is about pullers which do not say so.
  LanePolicy policy{.mode = Mode::kRemote, .allow_fallback = true, .assume_pull = true};
  const GatewayFacts gateway = Gateway(true);
  const Capabilities worker;
  EXPECT_EQ(
      Why(DecideLanes({policy, gateway, worker, {.nbytes = kLarge, .engine = EngineProto::kVllm}}),
          Lane::kRemote),
      LaneReason::kEngine);
}

TEST(LaneTable, SglangAndOthersAreAlwaysInline) {
  const GatewayFacts gateway = Gateway(true);
  Capabilities worker{.lanes = {Lane::kInline, Lane::kShm, Lane::kRemote},
                      .transports = {"grpc", "local", "file", "tcp", "nixl"},
                      .landing_bytes = 1 << 30,
                      .host = gateway.host,
                      .descriptor_versions = {1},
                      .instance_id = "w1"};
  for (const EngineProto engine : {EngineProto::kSglang, EngineProto::kTrtLlm}) {
    for (const Mode mode : {Mode::kAuto, Mode::kInline, Mode::kShm, Mode::kRemote}) {
      const LanePolicy policy{.mode = mode, .allow_fallback = true};
      const LaneDecision d =
          DecideLanes({policy, gateway, worker, {.nbytes = kLarge, .engine = engine}});
      EXPECT_EQ(d.offers.front().lane, Lane::kInline);
      EXPECT_EQ(Why(d, Lane::kShm), LaneReason::kEngine);
      EXPECT_EQ(Why(d, Lane::kRemote), LaneReason::kEngine);
    }
  }
}

TEST(LaneTable, NoLaneForAModalityThatTheEngineDoesNotTake) {
  const GatewayFacts gateway = Gateway(true);
  const LanePolicy policy;
  const Capabilities worker;
  for (const EngineProto engine : kAllEngineProtos) {
    for (const Modality modality : kAllModalities) {
      const LaneQuery query{
          policy, gateway, worker, {.nbytes = kLarge, .engine = engine, .modality = modality}};
      const LaneDecision d = DecideLanes(query);
      EXPECT_EQ(d.offers.empty(), !TakesModality(engine, modality));
      if (!d.offers.empty()) continue;
      for (const Lane lane : kAllLanes) EXPECT_EQ(Why(d, lane), LaneReason::kModality);
      const absl::Status error = NoLaneError(query, d);
      EXPECT_EQ(ReasonOf(error), Reason::kModality);
      EXPECT_THAT(
          std::string(error.message()),
          testing::HasSubstr(StrCat("backend ", EngineProtoName(engine), " does not support ",
                                    ModalityName(modality), " inputs")));
    }
  }
}

TEST(LaneTable, EveryWorkerAndEveryItemIsDecidedByItself) {
  const Settings router = *ParseSettings({.flags = {{"multimodal-tensor-transport", "rdma"},
                                                    {"rdma-listen-ip", "10.0.0.5"},
                                                    {"assume-pull", "true"}}});
  const GatewayFacts gateway = Gateway(true);
  const Capabilities worker;
  const auto lane = [&](const std::optional<std::string>& mode, uint64_t nbytes) {
    const LanePolicy policy = PolicyOf(
        *ForWorker(router, {.multimodal_tensor_transport = mode, .multimodal_shm_min_bytes = {}}));
    return DecideLanes({policy, gateway, worker, {.nbytes = nbytes}}).offers.front().lane;
  };
  EXPECT_EQ(lane({}, kLarge), Lane::kRemote);
  EXPECT_EQ(lane({}, kSmall), Lane::kInline);
  EXPECT_EQ(lane("inline", kLarge), Lane::kInline);
  EXPECT_EQ(lane("shm", kLarge), Lane::kShm);
  EXPECT_EQ(lane("auto", kLarge), Lane::kRemote);
}

TEST(LaneTable, BelowTheMinimumOfSharedMemoryTheNetworkIsNext) {
  const LanePolicy policy =
      PolicyOf(*ParseSettings({.flags = {{"multimodal-tensor-transport", "shm"},
                                         {"multimodal-shm-min-bytes", "1000000"},
                                         {"mm-pixel-rdma", "true"},
                                         {"assume-pull", "true"}}}));
  const GatewayFacts gateway = Gateway(true);
  const Capabilities worker;
  const LaneDecision d = DecideLanes({policy, gateway, worker, {.nbytes = 100000}});
  EXPECT_EQ(d.offers.front().lane, Lane::kRemote);
  EXPECT_EQ(Why(d, Lane::kShm), LaneReason::kBelowMinimum);
}

TEST(LaneTable, OurOwnWorkersMemoryIsProvenUnderEveryMode) {
  GatewayFacts gateway = Gateway(true);
  Capabilities worker{.lanes = {Lane::kInline, Lane::kShm, Lane::kRemote},
                      .transports = {"grpc", "local", "file", "tcp"},
                      .landing_bytes = 1 << 30,
                      .host = {.boot_id = {9}, .uid = 7, .shm_namespace = "c:26"},
                      .descriptor_versions = {1},
                      .instance_id = "w1"};
  const LanePolicy policy = PolicyOf(*ParseSettings(
      {.flags = {{"multimodal-tensor-transport", "shm"}, {"mm-pixel-rdma", "true"}}}));
  const LaneDecision d = DecideLanes({policy, gateway, worker, {.nbytes = kLarge}});
  EXPECT_EQ(d.offers.front().lane, Lane::kRemote);
  EXPECT_EQ(d.reason, LaneReason::kOtherHost);
}

TEST(LaneTable, RemoteFallsBackToProvenSharedMemory) {
  const LanePolicy policy = PolicyOf(*ParseSettings(
      {.flags = {{"multimodal-tensor-transport", "rdma"}, {"assume-pull", "true"}}}));
  const GatewayFacts gateway = Gateway(true);
  Capabilities worker;
  worker.host.uid = 7;
  worker.host.shm_namespace = "b:26";
  TensorFacts full{.nbytes = kLarge, .unexported = LaneReason::kArenaFull};
  LaneDecision d = DecideLanes({policy, gateway, worker, full});
  EXPECT_EQ(d.offers.front().lane, Lane::kShm);
  EXPECT_EQ(d.reason, LaneReason::kArenaFull);
  worker.host.shm_namespace = "c:26";
  d = DecideLanes({policy, gateway, worker, full});
  EXPECT_EQ(d.offers.front().lane, Lane::kInline);
}

}  // namespace
}  // namespace tensorferry
