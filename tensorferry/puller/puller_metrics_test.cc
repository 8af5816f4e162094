// What a puller and the gateway that it pulls from count, each by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "tensorferry/base/error.h"
#include "tensorferry/engine/fault/fault.h"
#include "tensorferry/exporter/exporter_testing.h"
#include "tensorferry/metrics/metrics_testing.h"
#include "tensorferry/puller/puller_testing.h"

namespace tensorferry {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;

constexpr size_t kBytes = 100'000;
const PullOptions kPatient = {.timeout = seconds(60), .request = "r1"};

class PullerMetricsTest : public testing::Test {
 protected:
  std::unique_ptr<Puller> Counted(
      const std::function<void(PullerOptions*)>& adjust = nullptr) const {
    return MakePuller([&](PullerOptions* options) {
      options->landing_bytes = 1 << 20;
      options->metrics = metrics_;
      if (adjust) adjust(options);
    });
  }
  double Received(std::string_view lane, std::string_view transport,
                  std::string_view result) const {
    return SampleOf(*metrics_, Metric::kReceivedTensors,
                    {{"lane", lane}, {"transport", transport}, {"result", result}});
  }
  double Handshakes(const Metrics& metrics, std::string_view end, std::string_view transport,
                    std::string_view result = "ok") const {
    return SampleOf(metrics, Metric::kHandshakes,
                    {{"end", end}, {"transport", transport}, {"result", result}});
  }

  std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>();
  std::shared_ptr<Metrics> gateway_metrics_ = std::make_shared<Metrics>();
  ExporterForTest gateway_{
      [this](ExporterOptions* options) { options->metrics = gateway_metrics_; }};
  Lease lease_ = gateway_->Export(Pattern(kBytes, 1), {});
};

TEST_F(PullerMetricsTest, CountsWhatArrivesByTransport) {
  const auto puller = Counted();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(puller->Pull(HandleOf(lease_, kShm), kPatient).ok());
  ASSERT_TRUE(puller->Pull(HandleOf(lease_, kRemote), kPatient).ok());
  EXPECT_EQ(Received("shm", "local", "ok"), 2);
  EXPECT_EQ(Received("remote", "tcp", "ok"), 1);
  EXPECT_EQ(SampleOf(*metrics_, Metric::kReceivedBytes, {{"lane", "shm"}, {"transport", "local"}}),
            2 * kBytes);
  EXPECT_EQ(SampleOf(*metrics_, Metric::kReceivedBytes, {{"lane", "remote"}, {"transport", "tcp"}}),
            kBytes);
  EXPECT_EQ(
      SampleOf(*metrics_, Metric::kReceiveDuration, {{"lane", "remote"}, {"transport", "tcp"}}), 1);
  // Each end counts its own side of the two connections.
  EXPECT_EQ(Handshakes(*metrics_, "worker", "local"), 1);
  EXPECT_EQ(Handshakes(*metrics_, "worker", "tcp"), 1);
  EXPECT_EQ(gateway_metrics_->ValueOf(Metric::kLeaseReads, {absl::OkStatus()}), 1U);
  // The gateway's thread may still be at it.
  while (Handshakes(*gateway_metrics_, "gateway", "local") != 1) std::this_thread::yield();
  EXPECT_EQ(Handshakes(*gateway_metrics_, "gateway", "tcp"), 1);
}

TEST_F(PullerMetricsTest, CountsWhatDoesNotArriveByItsReason) {
  const auto puller = Counted();
  const Handle handle = HandleOf(lease_, kRemote);
  lease_ = Lease();
  ASSERT_FALSE(puller->Pull(handle, kPatient).ok());
  EXPECT_EQ(Received("remote", "tcp", "lease_ended"), 1);
  EXPECT_EQ(gateway_metrics_->ValueOf(Metric::kLeaseReads, {Reason::kLeaseEnded}), 1U);
  ASSERT_FALSE(
      puller->Pull({.transport = "sesame", .descriptor = "x", .nbytes = 1}, kPatient).ok());
  EXPECT_EQ(Received("none", "none", "unknown_transport"), 1);
  EXPECT_EQ(SampleOf(*metrics_, Metric::kReceivedBytes, {{"lane", "remote"}, {"transport", "tcp"}}),
            -1);
  EXPECT_EQ(
      SampleOf(*metrics_, Metric::kReceiveDuration, {{"lane", "remote"}, {"transport", "tcp"}}),
      -1);
}

TEST_F(PullerMetricsTest, AGatewayThatIsGoneIsAHandshakeThatFailed) {
  const auto puller = Counted();
  const Handle handle = HandleOf(lease_, kRemote);
  gateway_.Reset();
  ASSERT_FALSE(puller->Pull(handle, kPatient).ok());
  EXPECT_EQ(Handshakes(*metrics_, "worker", "tcp", "unreachable"), 1);
  EXPECT_EQ(Received("remote", "tcp", "unreachable"), 1);
}

TEST_F(PullerMetricsTest, AConnectionThatIsReplacedIsAReconnect) {
  const auto puller = Counted();
  ASSERT_TRUE(puller->Pull(HandleOf(lease_, kRemote), kPatient).ok());
  gateway_.Restart();
  const Lease lease = gateway_->Export(Pattern(kBytes, 2), {});
  ASSERT_TRUE(puller->Pull(HandleOf(lease, kRemote), kPatient).ok());
  EXPECT_EQ(SampleOf(*metrics_, Metric::kReconnects, {{"transport", "tcp"}}), 1);
  EXPECT_EQ(Handshakes(*metrics_, "worker", "tcp"), 2);
}

TEST_F(PullerMetricsTest, GoingOnOverAnotherTransportIsAFallbackThatIsSaid) {
  std::vector<std::string> warnings;
  const auto puller = Counted([&](PullerOptions* options) {
    options->log = [&](LogLevel level, std::string_view line) {
      if (level == LogLevel::kWarning) warnings.emplace_back(line);
    };
    options->wrap = [](std::unique_ptr<engine::PullEngine> inner) {
      if (inner->transport() != "local") return inner;
      return WrapInFaults(std::move(inner), [](const engine::PullRequest&) {
        return engine::Fault{.kind = engine::Fault::Kind::kFail, .reason = Reason::kPeerClosed};
      });
    };
  });
  ASSERT_TRUE(puller->Pull(HandleOf(lease_), kPatient).ok());
  EXPECT_EQ(SampleOf(*metrics_, Metric::kPullFallbacks,
                     {{"from", "local"}, {"to", "tcp"}, {"reason", "peer_closed"}}),
            1);
  EXPECT_EQ(Received("remote", "tcp", "ok"), 1);
  EXPECT_EQ(Received("shm", "local", "peer_closed"), -1) << "it did arrive";
  EXPECT_THAT(warnings,
              ElementsAre("fallback request=r1 from=local to=tcp reason=peer_closed suppressed=0"));
}

TEST_F(PullerMetricsTest, ShowsLandingMemoryAndWhoWaitsForIt) {
  const auto puller = Counted();
  const auto landing = [&](std::string_view state) {
    return SampleOf(*metrics_, Metric::kLandingBytes, {{"state", state}});
  };
  EXPECT_EQ(landing("free"), 1 << 20);
  EXPECT_EQ(landing("used"), 0);
  const Lease large = gateway_->Export(Pattern(900'000, 1), {});
  auto first = puller->Pull(HandleOf(large, kRemote), kPatient);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_GE(landing("used"), 900'000);
  EXPECT_EQ(landing("free") + landing("used"), 1 << 20);
  // Shared with the callback, which may still be returning when the answer is there.
  const auto second = std::make_shared<std::promise<absl::Status>>();
  puller->PullAsync(HandleOf(large, kRemote), kPatient,
                    [second](absl::StatusOr<View> view) { second->set_value(view.status()); });
  while (SampleOf(*metrics_, Metric::kWaitingPulls) != 1) std::this_thread::yield();
  first = View();
  EXPECT_TRUE(second->get_future().get().ok());
  EXPECT_EQ(SampleOf(*metrics_, Metric::kWaitingPulls), 0);
}

TEST_F(PullerMetricsTest, ShowsWhatIsReadInPlaceUntilItIsGivenBack) {
  auto puller = Counted();
  auto view = puller->Pull(HandleOf(lease_, kShm), kPatient);
  ASSERT_TRUE(view.ok() && view->borrowed()) << view.status();
  EXPECT_EQ(SampleOf(*metrics_, Metric::kBorrowedViews), 1);
  EXPECT_EQ(SampleOf(*metrics_, Metric::kBorrowedBytes), kBytes);
  const View copy = *view;
  view = View();
  EXPECT_EQ(SampleOf(*metrics_, Metric::kBorrowedViews), 1) << "the copy holds it";
  puller.reset();
  EXPECT_EQ(SampleOf(*metrics_, Metric::kBorrowedViews), -1);
}

TEST_F(PullerMetricsTest, AViewThatIsDroppedIsNoLongerBorrowed) {
  const auto puller = Counted();
  { ASSERT_TRUE(puller->Pull(HandleOf(lease_, kShm), kPatient).ok()); }
  EXPECT_EQ(SampleOf(*metrics_, Metric::kBorrowedViews), 0);
  EXPECT_EQ(SampleOf(*metrics_, Metric::kBorrowedBytes), 0);
}

}  // namespace
}  // namespace tensorferry
