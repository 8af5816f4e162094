#include "tensorferry/metrics/fallbacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tensorferry {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

class FallbacksTest : public testing::Test {
 protected:
  void NoteArenaFull(const FallbackDetails& details) {
    fallbacks_.Note(Lane::kRemote, Lane::kInline, LaneReason::kArenaFull, details);
  }
  std::vector<std::string> TakeLines() { return std::exchange(lines_, {}); }

  std::vector<std::string> lines_;
  ManualClock clock_;
  std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>();
  Fallbacks fallbacks_{{.metric = Metric::kFallbacks,
                        .metrics = metrics_,
                        .log =
                            [this](LogLevel level, std::string_view line) {
                              EXPECT_EQ(level, LogLevel::kWarning);
                              lines_.emplace_back(line);
                            },
                        .limit = {.burst = 2, .period = seconds(10)},
                        .clock = &clock_}};
};

TEST_F(FallbacksTest, OneLineOfPairsForEach) {
  NoteArenaFull({.request = "encode-7", .worker = "10.0.0.7:50051", .cause = "timed_out"});
  NoteArenaFull({});
  EXPECT_THAT(TakeLines(),
              ElementsAre("fallback request=encode-7 worker=10.0.0.7:50051 from=remote to=inline "
                          "reason=arena_full cause=timed_out suppressed=0",
                          "fallback from=remote to=inline reason=arena_full suppressed=0"));
}

TEST_F(FallbacksTest, AFloodCostsALineNowAndThenAndIsCounted) {
  for (int i = 0; i < 100; ++i) NoteArenaFull({.request = "r"});
  EXPECT_EQ(TakeLines().size(), 2U);
  fallbacks_.Note(Lane::kShm, Lane::kInline, LaneReason::kArenaFull, {});
  EXPECT_EQ(TakeLines().size(), 1U) << "another kind";
  clock_.Advance(seconds(10));
  NoteArenaFull({.request = "r"});
  EXPECT_THAT(TakeLines(), ElementsAre("fallback request=r from=remote to=inline "
                                       "reason=arena_full suppressed=98"));
  EXPECT_EQ(
      metrics_->ValueOf(Metric::kFallbacks, {Lane::kRemote, Lane::kInline, LaneReason::kArenaFull}),
      101U);
}

TEST_F(FallbacksTest, AForeignNameCannotForgeALineOrAField) {
  NoteArenaFull({.request = "a b\nfallback reason=x\"\\\xff"});
  EXPECT_THAT(TakeLines(),
              ElementsAre("fallback request=a\\x20b\\x0afallback\\x20reason\\x3dx\\x22\\x5c\\xff "
                          "from=remote to=inline reason=arena_full suppressed=0"));
  NoteArenaFull({.request = std::string(1000, 'x')});
  EXPECT_THAT(TakeLines(), ElementsAre("fallback request=" + std::string(128, 'x') +
                                       "... from=remote to=inline reason=arena_full suppressed=0"));
}

TEST_F(FallbacksTest, WithoutALogTheyAreCountedAllTheSame) {
  Fallbacks silent({.metric = Metric::kFallbacks, .metrics = metrics_});
  silent.Note(Lane::kShm, Lane::kInline, LaneReason::kShmFailed, {});
  EXPECT_EQ(
      metrics_->ValueOf(Metric::kFallbacks, {Lane::kShm, Lane::kInline, LaneReason::kShmFailed}),
      1U);
  EXPECT_THAT(TakeLines(), IsEmpty());
}

}  // namespace
}  // namespace tensorferry
