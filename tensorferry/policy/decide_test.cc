#include "tensorferry/policy/decide.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <set>

namespace tensorferry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kLarge = 9 << 20;
constexpr BootId kBoot = {1, 2, 3};

struct Situation {
  LanePolicy policy;
  GatewayFacts gateway{.host = {.boot_id = kBoot, .uid = 7, .shm_namespace = {}},
                       .transports = {"local", "tcp"},
                       .descriptor_versions = {1}};
  Capabilities worker{.lanes = {Lane::kInline, Lane::kShm, Lane::kRemote},
                      .transports = {"grpc", "tcp", "local"},
                      .landing_bytes = 1 << 30,
                      .max_inline_bytes = 64 << 20,
                      .host = {.boot_id = kBoot, .uid = 7, .shm_namespace = {}},
                      .descriptor_versions = {1, 2},
                      .instance_id = "w1",
                      .version = "0.1.0"};
  TensorFacts tensor{.nbytes = kLarge, .unexported = std::nullopt};

  LaneQuery query() const { return {policy, gateway, worker, tensor}; }
  LaneDecision Decide() const { return DecideLanes(query()); }
};

std::vector<Lane> LanesOf(const LaneDecision& d) {
  std::vector<Lane> out;
  for (const LaneOffer& offer : d.offers) out.push_back(offer.lane);
  return out;
}

TEST(DecideLanes, AutoPrefersSharedMemoryThenNetworkThenMessage) {
  const LaneDecision d = Situation().Decide();
  EXPECT_THAT(d.offers,
              ElementsAre(LaneOffer{Lane::kShm, {"local"}}, LaneOffer{Lane::kRemote, {"tcp"}},
                          LaneOffer{Lane::kInline, {"grpc"}}));
  EXPECT_THAT(d.rejected, IsEmpty());
  EXPECT_EQ(d.reason, LaneReason::kPreferred);
}

// A worker's broken engine is the gateway's cause: it is told of in the worker's own words.
TEST(Explain, SaysWhyTheWorkerCouldNotOfferTheTransport) {
  Situation s;
  s.gateway.transports = {"tcp", "nixl"};
  s.worker.unavailable = {{"nixl", "no libnixl_capi.so"}, {"ucx", "no module"}};
  for (const LaneReason reason : {LaneReason::kNoCommonTransport, LaneReason::kNotAdvertised}) {
    EXPECT_THAT(Explain(s.query(), {Lane::kRemote, reason}),
                HasSubstr("the worker could not offer nixl: no libnixl_capi.so"));
    EXPECT_THAT(Explain(s.query(), {Lane::kRemote, reason}),
                testing::Not(HasSubstr("no module")));  // this gateway has no use for it
    EXPECT_THAT(Explain(s.query(), {Lane::kShm, reason}), testing::Not(HasSubstr("could not")));
  }
}

// One row per reason: what is changed, the lanes left under auto, what is said of the rejected one,
// the label.
struct Row {
  const char* name;
  std::function<void(Situation&)> change;
  std::vector<Lane> lanes;
  std::vector<Rejection> rejected;
  LaneReason reason;
};

void PrintTo(const Row& row, std::ostream* os) { *os << row.name; }

class AutoTable : public testing::TestWithParam<Row> {};

TEST_P(AutoTable, Decides) {
  Situation s;
  GetParam().change(s);
  const LaneDecision d = s.Decide();
  EXPECT_EQ(LanesOf(d), GetParam().lanes);
  EXPECT_EQ(d.rejected, GetParam().rejected);
  EXPECT_EQ(d.reason, GetParam().reason);
}

constexpr Lane kInline = Lane::kInline, kShm = Lane::kShm, kRemote = Lane::kRemote;
using R = LaneReason;

INSTANTIATE_TEST_SUITE_P(
    Reasons, AutoTable,
    testing::Values(Row{"empty",
                        [](Situation& s) { s.tensor.nbytes = 0; },
                        {kInline},
                        {{kShm, R::kEmpty}, {kRemote, R::kEmpty}},
                        R::kEmpty},
                    Row{"below_minimum",
                        [](Situation& s) { s.tensor.nbytes = 65535; },
                        {kInline},
                        {{kShm, R::kBelowMinimum}, {kRemote, R::kBelowMinimum}},
                        R::kBelowMinimum},
                    Row{"at_minimum",
                        [](Situation& s) { s.tensor.nbytes = 65536; },
                        {kShm, kRemote, kInline},
                        {},
                        R::kPreferred},
                    Row{"minimum_per_lane",
                        [](Situation& s) { s.policy.shm_min_bytes = kLarge + 1; },
                        {kRemote, kInline},
                        {{kShm, R::kBelowMinimum}},
                        R::kBelowMinimum},
                    Row{"no_minimum",
                        [](Situation& s) {
                          s.tensor.nbytes = 1;
                          s.policy.shm_min_bytes = 0;
                        },
                        {kShm, kInline},
                        {{kRemote, R::kBelowMinimum}},
                        R::kPreferred},
                    Row{"small_but_no_room_inline",
                        [](Situation& s) {
                          s.tensor.nbytes = 5000;
                          s.worker.max_inline_bytes = 4096;
                        },
                        {kShm, kRemote},
                        {{kInline, R::kOverMaxInline}},
                        R::kPreferred},
                    Row{"gateway_without_local",
                        [](Situation& s) { s.gateway.transports = {"tcp"}; },
                        {kRemote, kInline},
                        {{kShm, R::kLaneOff}},
                        R::kLaneOff},
                    Row{"gateway_without_engines",
                        [](Situation& s) { s.gateway.transports = {}; },
                        {kInline},
                        {{kShm, R::kLaneOff}, {kRemote, R::kLaneOff}},
                        R::kLaneOff},
                    Row{"gateway_whose_tcp_is_starting",
                        [](Situation& s) {
                          s.gateway.transports = {"local"};
                          s.gateway.starting = {"tcp"};
                          s.worker.host.boot_id = {9};
                        },
                        {kInline},
                        {{kShm, R::kOtherHost}, {kRemote, R::kStarting}},
                        R::kOtherHost},
                    Row{"gateway_whose_other_engine_is_starting",
                        [](Situation& s) { s.gateway.starting = {"nixl"}; },
                        {kShm, kRemote, kInline},
                        {},
                        R::kPreferred},
                    Row{"stock_worker",
                        [](Situation& s) { s.worker = Capabilities(); },
                        {kInline},
                        {{kShm, R::kNotAdvertised}, {kRemote, R::kNotAdvertised}},
                        R::kNotAdvertised},
                    Row{"remote_not_advertised",
                        [](Situation& s) {
                          s.worker.lanes = {kInline, kShm};
                        },
                        {kShm, kInline},
                        {{kRemote, R::kNotAdvertised}},
                        R::kPreferred},
                    Row{"no_common_transport",
                        [](Situation& s) {
                          s.worker.transports = {"local", "ucx"};
                        },
                        {kShm, kInline},
                        {{kRemote, R::kNoCommonTransport}},
                        R::kPreferred},
                    Row{"no_common_version",
                        [](Situation& s) { s.worker.descriptor_versions = {2}; },
                        {kInline},
                        {{kShm, R::kNoCommonVersion}, {kRemote, R::kNoCommonVersion}},
                        R::kNoCommonVersion},
                    Row{"other_host",
                        [](Situation& s) { s.worker.host.boot_id = {9}; },
                        {kRemote, kInline},
                        {{kShm, R::kOtherHost}},
                        R::kOtherHost},
                    Row{"unknown_host",
                        [](Situation& s) { s.worker.host.boot_id = s.gateway.host.boot_id = {}; },
                        {kRemote, kInline},
                        {{kShm, R::kOtherHost}},
                        R::kOtherHost},
                    Row{"uid_differs",
                        [](Situation& s) { s.worker.host.uid = 8; },
                        {kRemote, kInline},
                        {{kShm, R::kUidDiffers}},
                        R::kUidDiffers},
                    Row{"uid_unknown",
                        [](Situation& s) { s.worker.host.uid = s.gateway.host.uid = {}; },
                        {kRemote, kInline},
                        {{kShm, R::kUidDiffers}},
                        R::kUidDiffers},
                    Row{"arena_full",
                        [](Situation& s) { s.tensor.unexported = R::kArenaFull; },
                        {kInline},
                        {{kShm, R::kArenaFull}, {kRemote, R::kArenaFull}},
                        R::kArenaFull},
                    Row{"the_tensors_reason_before_the_setups",
                        [](Situation& s) {
                          s.tensor.unexported = R::kArenaFull;
                          s.gateway.transports = {"tcp"};
                        },
                        {kInline},
                        {{kShm, R::kLaneOff}, {kRemote, R::kArenaFull}},
                        R::kArenaFull},
                    Row{"duplicate_key",
                        [](Situation& s) { s.tensor.unexported = R::kDuplicateKey; },
                        {kInline},
                        {{kShm, R::kDuplicateKey}, {kRemote, R::kDuplicateKey}},
                        R::kDuplicateKey},
                    Row{"shut_down",
                        [](Situation& s) { s.tensor.unexported = R::kShutDown; },
                        {kInline},
                        {{kShm, R::kShutDown}, {kRemote, R::kShutDown}},
                        R::kShutDown},
                    Row{"over_landing",
                        [](Situation& s) { s.worker.landing_bytes = kLarge - 1; },
                        {kShm, kInline},
                        {{kRemote, R::kOverLanding}},
                        R::kPreferred},
                    Row{"just_fits_landing",
                        [](Situation& s) { s.worker.landing_bytes = kLarge; },
                        {kShm, kRemote, kInline},
                        {},
                        R::kPreferred},
                    Row{"just_fits_a_message",
                        [](Situation& s) { s.worker.max_inline_bytes = kLarge + 65536; },
                        {kShm, kRemote, kInline},
                        {},
                        R::kPreferred},
                    Row{"over_max_inline",
                        [](Situation& s) { s.worker.max_inline_bytes = kLarge + 65535; },
                        {kShm, kRemote},
                        {{kInline, R::kOverMaxInline}},
                        R::kPreferred},
                    Row{"max_inline_not_known",
                        [](Situation& s) { s.worker.max_inline_bytes = 0; },
                        {kShm, kRemote, kInline},
                        {},
                        R::kPreferred}),
    [](const testing::TestParamInfo<Row>& row) { return std::string(row.param.name); });

// Files under /dev/shm: to our own worker after the arena, to a stock one by themselves.
struct FileRow {
  const char* name;
  Mode mode;
  std::function<void(Situation&)> change;
  // Of lane shm: what it offers, or why not.
  std::vector<std::string> transports;
  LaneReason reason;
};

void PrintTo(const FileRow& row, std::ostream* os) { *os << row.name; }

class FileTable : public testing::TestWithParam<FileRow> {};

Situation WithFiles() {
  Situation s;
  s.gateway.transports = {"local", "tcp", "file"};
  s.gateway.host.shm_namespace = s.worker.host.shm_namespace = "b:26";
  s.worker.transports.emplace_back("file");
  return s;
}

// A worker of which only that is known which a gateway of SMG knows.
void MakeStock(Situation& s) {
  s.worker = Capabilities();
  s.worker.host.shm_namespace = "b:26";
  s.worker.host.uid = 7;
}

TEST_P(FileTable, Decides) {
  Situation s = WithFiles();
  s.policy.mode = GetParam().mode;
  GetParam().change(s);
  const LaneDecision d = s.Decide();
  const LaneOffer* offer = d.Find(Lane::kShm);
  ASSERT_EQ(offer != nullptr, !GetParam().transports.empty());
  if (offer != nullptr) {
    EXPECT_EQ(offer->transports, GetParam().transports);
  } else {
    EXPECT_THAT(d.rejected, testing::Contains(Rejection{Lane::kShm, GetParam().reason}));
    EXPECT_THAT(Explain(s.query(), {Lane::kShm, GetParam().reason}),
                HasSubstr(std::string(LaneReasonName(GetParam().reason))));
  }
}

constexpr auto kNoReason = LaneReason::kPreferred;

INSTANTIATE_TEST_SUITE_P(
    Files, FileTable,
    testing::Values(
        FileRow{"ours_maps_first", Mode::kAuto, [](Situation&) {}, {"local", "file"}, kNoReason},
        FileRow{"ours_by_name", Mode::kShm, [](Situation&) {}, {"local", "file"}, kNoReason},
        FileRow{"ours_without_local",
                Mode::kAuto,
                [](Situation& s) {
                  s.gateway.transports = {"tcp", "file"};
                },
                {"file"},
                kNoReason},
        FileRow{"ours_arena_full",
                Mode::kAuto,
                [](Situation& s) { s.tensor.unexported = R::kArenaFull; },
                {"file"},
                kNoReason},
        FileRow{"ours_arena_full_and_file_failed",
                Mode::kAuto,
                [](Situation& s) {
                  s.tensor.unexported = R::kArenaFull;
                  s.tensor.file_failed = true;
                },
                {},
                R::kShmFailed},
        FileRow{"ours_without_files",
                Mode::kAuto,
                [](Situation& s) {
                  s.tensor.unexported = R::kArenaFull;
                  s.worker.transports = {"grpc", "local"};
                },
                {},
                R::kArenaFull},
        FileRow{"ours_takes_files_only_but_not_the_lane",
                Mode::kShm,
                [](Situation& s) {
                  s.gateway.transports = {"file"};
                  s.worker.lanes = {Lane::kInline};
                },
                {},
                R::kNotAdvertised},
        FileRow{"ours_reads_none",
                Mode::kShm,
                [](Situation& s) {
                  s.gateway.transports = {"file"};
                  s.worker.transports = {"grpc", "local"};
                },
                {},
                R::kNoCommonTransport},
        FileRow{"ours_with_another_shm",
                Mode::kShm,
                [](Situation& s) {
                  s.gateway.transports = {"file"};
                  s.worker.host.shm_namespace = "b:27";
                },
                {},
                R::kOtherHost},
        FileRow{"ours_elsewhere",
                Mode::kAuto,
                [](Situation& s) {
                  s.worker.host.boot_id = {9};
                  s.worker.host.shm_namespace = "c:26";
                },
                {},
                R::kOtherHost},
        FileRow{"ours_unknown_shm",
                Mode::kShm,
                [](Situation& s) {
                  s.gateway.transports = {"file"};
                  s.gateway.host.shm_namespace = s.worker.host.shm_namespace = "";
                },
                {},
                R::kOtherHost},
        FileRow{"ours_of_another_user",
                Mode::kAuto,
                [](Situation& s) { s.worker.host.uid = 8; },
                {},
                R::kUidDiffers},
        // It looks at the owner.
        FileRow{"ours_as_root",
                Mode::kShm,
                [](Situation& s) { s.worker.host.uid = 0; },
                {},
                R::kUidDiffers},
        FileRow{"ours_over_landing",
                Mode::kShm,
                [](Situation& s) {
                  s.gateway.transports = {"file"};
                  s.worker.landing_bytes = kLarge - 1;
                },
                {},
                R::kOverLanding},
        FileRow{"ours_of_another_version",
                Mode::kShm,
                [](Situation& s) { s.worker.descriptor_versions = {2}; },
                {"file"},
                kNoReason},
        FileRow{"stock_shares_shm", Mode::kAuto, MakeStock, {"file"}, kNoReason},
        FileRow{"stock_as_root",
                Mode::kAuto,
                [](Situation& s) {
                  MakeStock(s);
                  s.worker.host.uid = 0;
                },
                {"file"},
                kNoReason},
        FileRow{"stock_of_another_user",
                Mode::kAuto,
                [](Situation& s) {
                  MakeStock(s);
                  s.worker.host.uid = 8;
                },
                {},
                R::kUidDiffers},
        FileRow{"stock_of_an_unknown_user",
                Mode::kAuto,
                [](Situation& s) {
                  MakeStock(s);
                  s.worker.host.uid = {};
                },
                {},
                R::kUidDiffers},
        FileRow{"stock_elsewhere",
                Mode::kAuto,
                [](Situation& s) {
                  MakeStock(s);
                  s.worker.host.shm_namespace = "c:26";
                },
                {},
                R::kOtherHost},
        FileRow{"stock_anywhere",
                Mode::kAuto,
                [](Situation& s) { s.worker = Capabilities(); },
                {},
                R::kOtherHost},
        FileRow{"stock_vouched_for",
                Mode::kShm,
                [](Situation& s) { s.worker = Capabilities(); },
                {"file"},
                kNoReason},
        FileRow{"stock_vouched_for_as_root",
                Mode::kShm,
                [](Situation& s) {
                  s.worker = Capabilities();
                  s.worker.host.uid = 0;
                },
                {"file"},
                kNoReason},
        FileRow{"stock_vouched_for_of_another_user",
                Mode::kShm,
                [](Situation& s) {
                  s.worker = Capabilities();
                  s.worker.host.uid = 8;
                },
                {},
                R::kUidDiffers},
        // Only naming shm vouches, not that another lane may fall back to it.
        FileRow{"stock_as_a_fallback",
                Mode::kRemote,
                [](Situation& s) {
                  s.worker = Capabilities();
                  s.policy.allow_fallback = true;
                },
                {},
                R::kOtherHost},
        FileRow{"stock_arena_full",
                Mode::kShm,
                [](Situation& s) {
                  MakeStock(s);
                  s.tensor.unexported = R::kArenaFull;
                },
                {"file"},
                kNoReason},
        FileRow{"stock_file_failed",
                Mode::kShm,
                [](Situation& s) {
                  MakeStock(s);
                  s.tensor.file_failed = true;
                },
                {},
                R::kShmFailed},
        FileRow{"stock_and_no_files_here",
                Mode::kShm,
                [](Situation& s) {
                  MakeStock(s);
                  s.gateway.transports = {"local", "tcp"};
                },
                {},
                R::kNotAdvertised}),
    [](const testing::TestParamInfo<FileRow>& row) { return std::string(row.param.name); });

TEST(DecideLanes, AFileThatFailedIsTheReasonForTheNextLane) {
  Situation s = WithFiles();
  MakeStock(s);
  s.tensor.file_failed = true;
  EXPECT_THAT(LanesOf(s.Decide()), ElementsAre(kInline));
  EXPECT_EQ(s.Decide().reason, LaneReason::kShmFailed);
  s.policy = {.mode = Mode::kShm, .allow_fallback = true};
  EXPECT_THAT(LanesOf(s.Decide()), ElementsAre(kInline));
  EXPECT_EQ(s.Decide().reason, LaneReason::kShmFailed);
}

TEST(DecideLanes, SmallTensorsOfStockWorkersGoInTheMessageUnlessTheLaneIsNamed) {
  Situation s = WithFiles();
  MakeStock(s);
  s.tensor.nbytes = 65535;
  EXPECT_EQ(s.Decide().reason, LaneReason::kBelowMinimum);
  s.policy.mode = Mode::kShm;
  EXPECT_THAT(s.Decide().offers, ElementsAre(LaneOffer{Lane::kShm, {"file"}}));
}

TEST(DecideLanes, TransportsKeepTheGatewaysOrder) {
  Situation s;
  s.gateway.transports = {"ucx", "tcp"};
  s.worker.transports = {"tcp", "ucx"};
  EXPECT_THAT(s.Decide().Find(Lane::kRemote)->transports, ElementsAre("ucx", "tcp"));
}

TEST(DecideLanes, NamedLaneTakesEverySize) {
  for (const uint64_t nbytes : {uint64_t{0}, uint64_t{1}, kLarge}) {
    for (const Mode mode : {Mode::kInline, Mode::kShm, Mode::kRemote}) {
      Situation s;
      s.policy.mode = mode;
      s.tensor.nbytes = nbytes;
      const LaneDecision d = s.Decide();
      EXPECT_THAT(LanesOf(d), ElementsAre(*NamedLane(mode))) << ModeName(mode) << nbytes;
      EXPECT_EQ(d.reason, LaneReason::kMode);
      EXPECT_EQ(d.rejected.size(), 2u);
      for (const Rejection& r : d.rejected) EXPECT_EQ(r.reason, LaneReason::kMode);
    }
  }
}

TEST(DecideLanes, NamedLaneNeverFallsBackSilently) {
  Situation s;
  s.policy.mode = Mode::kShm;
  s.worker.host.uid = 8;
  const LaneDecision d = s.Decide();
  EXPECT_THAT(d.offers, IsEmpty());
  const absl::Status error = NoLaneError(s.query(), d);
  EXPECT_EQ(ReasonOf(error), Reason::kUidMismatch);
  EXPECT_THAT(std::string(error.message()), HasSubstr("uid 8"));
}

TEST(DecideLanes, AllowedFallbackSaysWhy) {
  Situation s;
  s.policy = {.mode = Mode::kRemote, .allow_fallback = true};
  s.tensor.nbytes = 100;  // minimum sizes are kAuto's business in fallbacks too
  EXPECT_THAT(LanesOf(s.Decide()), ElementsAre(kRemote, kShm, kInline));
  EXPECT_EQ(s.Decide().reason, LaneReason::kMode);
  s.worker.landing_bytes = 0;
  EXPECT_THAT(LanesOf(s.Decide()), ElementsAre(kShm, kInline));
  EXPECT_EQ(s.Decide().reason, LaneReason::kOverLanding);
}

TEST(DecideLanes, NoLaneAtAllIsAnErrorThatNamesEach) {
  Situation s;
  s.worker.lanes = {Lane::kRemote};
  s.worker.landing_bytes = 1000;
  const LaneDecision d = s.Decide();
  EXPECT_THAT(d.offers, IsEmpty());
  const absl::Status error = NoLaneError(s.query(), d);
  EXPECT_EQ(ReasonOf(error), Reason::kLaneOff);
  EXPECT_THAT(std::string(error.message()),
              testing::AllOf(HasSubstr("lane shm: not_advertised"),
                             HasSubstr("lane remote: over_landing: 9437184 bytes"),
                             HasSubstr("lane inline: not_advertised")));
}

TEST(LaneReason, TheGuideListsEveryName) {
  std::ifstream file(TENSORFERRY_SOURCE_DIR "/docs/embedding.md");
  const std::string guide((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
#define TENSORFERRY_X(id, name, error, meaning) EXPECT_THAT(guide, HasSubstr("`" name "`"));
  TENSORFERRY_LANE_REASONS(TENSORFERRY_X)
#undef TENSORFERRY_X
}

TEST(LaneReason, NamesAreDistinctAndEachIsExplained) {
  std::set<std::string_view> names;
  Situation s;
#define TENSORFERRY_X(id, name, error, meaning)                     \
  EXPECT_TRUE(names.insert(LaneReasonName(LaneReason::id)).second); \
  EXPECT_THAT(Explain(s.query(), {Lane::kRemote, LaneReason::id}),  \
              testing::StartsWith("lane remote: " name ": "));
  TENSORFERRY_LANE_REASONS(TENSORFERRY_X)
#undef TENSORFERRY_X
}

TEST(InlineMayHelp, OnlyForWhatLiesInTheLane) {
  EXPECT_TRUE(InlineMayHelp(Reason::kTimedOut));
  EXPECT_TRUE(InlineMayHelp(Reason::kUnreachable));
  EXPECT_TRUE(InlineMayHelp(Reason::kLeaseEnded));
  EXPECT_TRUE(InlineMayHelp(Reason::kNotAllowed));
  EXPECT_TRUE(InlineMayHelp(Reason::kTooLarge));
  EXPECT_FALSE(InlineMayHelp(Reason::kSizeMismatch));
  EXPECT_FALSE(InlineMayHelp(Reason::kUnknownDtype));
  EXPECT_FALSE(InlineMayHelp(Reason::kKeyMismatch));
  EXPECT_FALSE(InlineMayHelp(Reason::kCancelled));
  EXPECT_FALSE(InlineMayHelp(Reason::kShutDown));
}

}  // namespace
}  // namespace tensorferry
