// What an exporter counts, and shows of its arena.
#include <gtest/gtest.h>

#include "tensorferry/base/error.h"
#include "tensorferry/exporter/exporter_testing.h"
#include "tensorferry/metrics/metrics_testing.h"

namespace tensorferry {
namespace {

using std::chrono::seconds;

constexpr double kArena = 8 << 20;

class ExporterMetricsTest : public testing::Test {
 protected:
  double Arena(std::string_view state) const {
    return SampleOf(*metrics_, Metric::kArenaBytes, {{"state", state}});
  }
  double Leases(std::string_view state) const {
    return SampleOf(*metrics_, Metric::kLeases, {{"state", state}});
  }
  double Ends(std::string_view cause) const {
    return SampleOf(*metrics_, Metric::kLeaseEnds, {{"cause", cause}});
  }

  std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>();
  ManualClock clock_;
  OneSidedEngine* one_sided_ = nullptr;
  ExporterForTest gateway_{[this](ExporterOptions* options) {
    OneSidedEngine::Into (&one_sided_)(options);
    options->metrics = metrics_;
    options->clock = &clock_;
  }};
};

TEST_F(ExporterMetricsTest, ShowsTheArenaAndItsLeases) {
  EXPECT_EQ(Arena("free"), kArena);
  EXPECT_EQ(Arena("used"), 0);
  Staged staged = gateway_->Stage(1 << 20);
  EXPECT_GE(Arena("used"), 1 << 20);
  EXPECT_EQ(Leases("writing"), 1);
  Lease lease = std::move(staged).Publish({});
  EXPECT_EQ(Leases("writing"), 0);
  EXPECT_EQ(Leases("published"), 1);
  // Whoever READs it may not be done when it ends.
  ASSERT_TRUE(lease.SmgDescriptor().ok());
  lease = Lease();
  EXPECT_EQ(Leases("published"), 0);
  EXPECT_EQ(Leases("resting"), 1);
  EXPECT_GE(Arena("resting"), 1 << 20);
  EXPECT_EQ(Arena("used"), 0);
  EXPECT_EQ(Arena("free") + Arena("resting"), kArena);
  gateway_->Close();
  EXPECT_EQ(Arena("free"), -1) << "nobody can say any more";
}

TEST_F(ExporterMetricsTest, CountsHowLeasesEndAndHowLongTheyLasted) {
  { const Lease dropped = gateway_->Export(Pattern(100, 1), {}); }
  EXPECT_EQ(Ends("dropped"), 1);

  const Lease cancelled = gateway_->Export(Pattern(100, 1), {.key = 7});
  clock_.Advance(seconds(2));
  ASSERT_TRUE(gateway_->Cancel(7).ok());
  EXPECT_EQ(Ends("cancelled"), 1);

  const Lease read = gateway_->Export(Pattern(100, 1), {.key = 8, .readers = 1});
  ASSERT_TRUE(one_sided_->leases->DoneByKey(8));
  EXPECT_EQ(Ends("released"), 1);

  const Lease expired = gateway_->Export(Pattern(100, 1), {.ttl = seconds(20)});
  clock_.Advance(seconds(20));
  const Lease next = gateway_->Export(Pattern(100, 1), {});  // looks at the time
  EXPECT_EQ(Ends("expired"), 1);

  const auto lasted = FindSample(*metrics_, Metric::kLeaseDuration, {});
  ASSERT_TRUE(lasted.has_value());
  EXPECT_EQ(lasted->count, 4U);
  EXPECT_NEAR(lasted->sum, 22, 1e-6);
}

TEST_F(ExporterMetricsTest, CountsWhatDidNotFit) {
  const Lease large = gateway_->Export(Pattern(16 << 20, 1), {});
  EXPECT_EQ(ReasonOf(large.exported()), Reason::kArenaFull);
  EXPECT_EQ(SampleOf(*metrics_, Metric::kHeapFallbacks), 1);
}

}  // namespace
}  // namespace tensorferry
