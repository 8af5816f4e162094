#include "tensorferry/policy/fallback.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace tensorferry {
namespace {

constexpr BootId kBoot = {1, 2, 3};
constexpr Lane kInline = Lane::kInline, kShm = Lane::kShm, kRemote = Lane::kRemote;
using R = LaneReason;

struct Situation {
  LanePolicy policy;
  GatewayFacts gateway{.host = {.boot_id = kBoot, .uid = 7, .shm_namespace = "shm"},
                       .transports = {"local", "tcp"},
                       .descriptor_versions = {1}};
  Capabilities worker{.lanes = {kInline, kShm, kRemote},
                      .transports = {"grpc", "tcp", "local"},
                      .landing_bytes = 1 << 30,
                      .max_inline_bytes = 64 << 20,
                      .host = {.boot_id = kBoot, .uid = 7, .shm_namespace = "shm"},
                      .descriptor_versions = {1},
                      .instance_id = "w1"};
  TensorFacts tensor{.nbytes = 9 << 20};

  void Name(Mode mode, bool allow_fallback = true) {
    policy.mode = mode;
    policy.allow_fallback = allow_fallback;
  }
  // A worker of SMG's that reads over nixl.
  void StockPuller() {
    gateway.transports = {"nixl"};
    worker = {.lanes = {kInline, kRemote}, .transports = {"grpc", "nixl"}};
  }
};

struct Row {
  const char* name;
  std::function<void(Situation&)> change;
  std::optional<Fallback> fallback;
};
void PrintTo(const Row& row, std::ostream* os) { *os << row.name; }

class FallbackTable : public testing::TestWithParam<Row> {};

TEST_P(FallbackTable, Tells) {
  Situation s;
  GetParam().change(s);
  const LaneQuery query{s.policy, s.gateway, s.worker, s.tensor};
  EXPECT_EQ(FallbackOf(query, DecideLanes(query)), GetParam().fallback);
}

std::string NameOfRow(const testing::TestParamInfo<Row>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Rule, FallbackTable,
    testing::Values(
        Row{"the_best_lane", [](Situation&) {}, {}},
        Row{"below_the_minimum", [](Situation& s) { s.tensor.nbytes = 100; }, {}},
        Row{"empty", [](Situation& s) { s.tensor.nbytes = 0; }, {}},
        Row{"small_and_the_arena_full",
            [](Situation& s) {
              s.tensor.nbytes = 100;
              s.tensor.unexported = R::kArenaFull;
            },
            {}},
        Row{"another_host", [](Situation& s) { s.worker.host.boot_id = {9}; }, {}},
        Row{"another_user", [](Situation& s) { s.worker.host.uid = 8; }, {}},
        Row{"a_worker_that_takes_messages_only",
            [](Situation& s) { s.worker.lanes = {kInline}; },
            {}},
        Row{"a_stock_worker", [](Situation& s) { s.worker = {.lanes = {kInline}}; }, {}},
        Row{"a_gateway_that_serves_nothing", [](Situation& s) { s.gateway.transports = {}; }, {}},
        Row{"no_version_in_common", [](Situation& s) { s.worker.descriptor_versions = {7}; }, {}},
        Row{"a_side_tensor",
            [](Situation& s) {
              s.Name(Mode::kRemote);
              s.tensor.role = TensorRole::kSide;
            },
            {}},
        Row{"an_engine_without_handles",
            [](Situation& s) {
              s.Name(Mode::kRemote);
              s.tensor.engine = EngineProto::kSglang;
            },
            {}},
        Row{"the_named_lane", [](Situation& s) { s.Name(Mode::kRemote); }, {}},
        Row{"small_for_the_named_lane",
            [](Situation& s) {
              s.Name(Mode::kShm);
              s.policy.always_minimum = true;
              s.tensor.nbytes = 100;
            },
            {}},
        Row{"an_error",
            [](Situation& s) {
              s.Name(Mode::kRemote, /*allow_fallback=*/false);
              s.tensor.unexported = R::kArenaFull;
            },
            {}}),
    NameOfRow);

INSTANTIATE_TEST_SUITE_P(
    Trouble, FallbackTable,
    testing::Values(Row{"arena_full", [](Situation& s) { s.tensor.unexported = R::kArenaFull; },
                        Fallback{kShm, kInline, R::kArenaFull}},
                    Row{"arena_full_for_another_host",
                        [](Situation& s) {
                          s.worker.host.boot_id = {9};
                          s.tensor.unexported = R::kArenaFull;
                        },
                        Fallback{kRemote, kInline, R::kArenaFull}},
                    Row{"duplicate_key",
                        [](Situation& s) { s.tensor.unexported = R::kDuplicateKey; },
                        Fallback{kShm, kInline, R::kDuplicateKey}},
                    Row{"shut_down", [](Situation& s) { s.tensor.unexported = R::kShutDown; },
                        Fallback{kShm, kInline, R::kShutDown}},
                    Row{"arena_full_for_a_worker_that_takes_messages_only",
                        [](Situation& s) {
                          s.worker.lanes = {kInline};
                          s.tensor.unexported = R::kArenaFull;
                        },
                        {}},
                    Row{"an_engine_that_does_not_run_yet",
                        [](Situation& s) {
                          s.gateway.transports = {"tcp"};
                          s.gateway.starting = {"local"};
                        },
                        Fallback{kShm, kRemote, R::kStarting}},
                    Row{"over_landing",
                        [](Situation& s) {
                          s.worker.host.boot_id = {9};
                          s.worker.landing_bytes = 1 << 20;
                        },
                        Fallback{kRemote, kInline, R::kOverLanding}},
                    Row{"resting",
                        [](Situation& s) {
                          s.StockPuller();
                          s.tensor.against_nixl = R::kResting;
                        },
                        Fallback{kRemote, kInline, R::kResting}},
                    Row{"agent_restarted",
                        [](Situation& s) {
                          s.StockPuller();
                          s.tensor.against_nixl = R::kAgentRestarted;
                        },
                        Fallback{kRemote, kInline, R::kAgentRestarted}},
                    Row{"a_file_that_could_not_be_written",
                        [](Situation& s) {
                          s.gateway.transports = {"file", "tcp"};
                          s.worker.transports = {"grpc", "file", "tcp"};
                          s.tensor.file_failed = true;
                        },
                        Fallback{kShm, kRemote, R::kShmFailed}},
                    Row{"over_max_inline",
                        [](Situation& s) {
                          s.Name(Mode::kInline);
                          s.worker.max_inline_bytes = 1 << 20;
                        },
                        Fallback{kInline, kShm, R::kOverMaxInline}}),
    NameOfRow);

// What the two ends cannot do at all counts when the operator asked for it by name.
INSTANTIATE_TEST_SUITE_P(Named, FallbackTable,
                         testing::Values(Row{"shm_on_another_host",
                                             [](Situation& s) {
                                               s.Name(Mode::kShm);
                                               s.worker.host.boot_id = {9};
                                             },
                                             Fallback{kShm, kRemote, R::kOtherHost}},
                                         Row{"a_gateway_without_the_lane",
                                             [](Situation& s) {
                                               s.Name(Mode::kRemote);
                                               s.gateway.transports = {"local"};
                                             },
                                             Fallback{kRemote, kShm, R::kLaneOff}},
                                         Row{"a_worker_without_the_lane",
                                             [](Situation& s) {
                                               s.Name(Mode::kRemote);
                                               s.worker.lanes = {kInline};
                                             },
                                             Fallback{kRemote, kInline, R::kNotAdvertised}},
                                         Row{"arena_full",
                                             [](Situation& s) {
                                               s.Name(Mode::kRemote);
                                               s.tensor.unexported = R::kArenaFull;
                                             },
                                             Fallback{kRemote, kInline, R::kArenaFull}}),
                         NameOfRow);

}  // namespace
}  // namespace tensorferry
