#include "tensorferry/prometheus/metrics_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include "tensorferry/base/error.h"
#include "tensorferry/prometheus/collector.h"

namespace tensorferry {
namespace {

using testing::HasSubstr;

SocketAddress Address(std::string_view text) { return *SocketAddress::Parse(text); }

class MetricsServerTest : public testing::Test {
 protected:
  std::unique_ptr<MetricsServer> Start(std::string_view listen) {
    auto server = MetricsServer::Start(metrics_, Address(listen));
    EXPECT_TRUE(server.ok()) << server.status();
    return server.ok() ? *std::move(server) : nullptr;
  }
  static std::string Get(const SocketAddress& address, const std::string& path, int status) {
    httplib::Client client(address.HostText(), address.port());
    const httplib::Result result = client.Get(path);
    EXPECT_TRUE(result) << httplib::to_string(result.error());
    if (!result) return "";
    EXPECT_EQ(result->status, status);
    return result->body;
  }

  std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>();
};

TEST_F(MetricsServerTest, ServesTheTextThatPrometheusReads) {
  const auto server = Start("127.0.0.1:0");
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(server->address().HostText(), "127.0.0.1");
  EXPECT_NE(server->address().port(), 0);
  EXPECT_EQ(Get(server->address(), "/metrics", 200), "");
  metrics_->Add(Metric::kFallbacks, {Lane::kShm, Lane::kInline, LaneReason::kArenaFull}, 3);
  metrics_->Observe(Metric::kLeaseDuration, {}, std::chrono::seconds(2));
  const auto watch = Metrics::WatchBy(
      metrics_, [](Gauges* g) { g->Add(Metric::kArenaBytes, {ArenaState::kUsed}, 1ULL << 40); });
  const std::string text = Get(server->address(), "/metrics", 200);
  EXPECT_THAT(text, HasSubstr("# TYPE tensorferry_fallbacks_total counter\n"
                              "tensorferry_fallbacks_total{from=\"shm\",to=\"inline\","
                              "reason=\"arena_full\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE tensorferry_arena_bytes gauge\n"
                              "tensorferry_arena_bytes{state=\"used\"} 1099511627776\n"));
  EXPECT_THAT(text, HasSubstr("tensorferry_lease_duration_seconds_bucket{le=\"1\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("tensorferry_lease_duration_seconds_bucket{le=\"5\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("tensorferry_lease_duration_seconds_bucket{le=\"+Inf\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("tensorferry_lease_duration_seconds_sum 2\n"));
}

TEST_F(MetricsServerTest, NothingElseIsServed) {
  const auto server = Start("127.0.0.1:0");
  ASSERT_NE(server, nullptr);
  Get(server->address(), "/", 404);
  Get(server->address(), "/etc/passwd", 404);
}

TEST_F(MetricsServerTest, OverIpv6AndAnyAddress) {
  metrics_->Add(Metric::kHeapFallbacks, {});
  for (const char* listen : {"[::1]:0", "0.0.0.0:0"}) {
    const auto server = Start(listen);
    ASSERT_NE(server, nullptr);
    SocketAddress dialled = Address(server->address().is_v6() ? "[::1]:1" : "127.0.0.1:1");
    dialled.set_port(server->address().port());
    EXPECT_THAT(Get(dialled, "/metrics", 200), HasSubstr("tensorferry_heap_fallbacks_total 1\n"));
  }
}

TEST_F(MetricsServerTest, SaysWhyItCannotServe) {
  const auto first = Start("127.0.0.1:0");
  ASSERT_NE(first, nullptr);
  const auto second = MetricsServer::Start(metrics_, first->address());
  EXPECT_EQ(ReasonOf(second.status()), Reason::kAddressInUse) << second.status();
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(first->address().ToString()));
  // Of the range that is for documentation.
  EXPECT_EQ(ReasonOf(MetricsServer::Start(metrics_, Address("192.0.2.1:0")).status()),
            Reason::kBadAddress);
}

TEST_F(MetricsServerTest, ThePortIsFreeAgainWhenItHasGone) {
  auto server = Start("127.0.0.1:0");
  ASSERT_NE(server, nullptr);
  const SocketAddress address = server->address();
  Get(address, "/metrics", 200);
  server.reset();
  EXPECT_NE(Start(address.ToString()), nullptr);
}

TEST(PrometheusCollectorTest, ShowsEveryKind) {
  const auto metrics = std::make_shared<Metrics>();
  metrics->Add(Metric::kHeapFallbacks, {}, 2);
  metrics->Observe(Metric::kLeaseDuration, {}, std::chrono::milliseconds(500));
  const auto watch =
      Metrics::WatchBy(metrics, [](Gauges* g) { g->Add(Metric::kWaitingPulls, {}, 4); });
  const std::vector<prometheus::MetricFamily> families = PrometheusCollector(metrics).Collect();
  ASSERT_EQ(families.size(), 3U);
  EXPECT_EQ(families[0].type, prometheus::MetricType::Histogram);
  EXPECT_EQ(families[0].metric[0].histogram.sample_count, 1U);
  EXPECT_EQ(families[0].metric[0].histogram.sample_sum, 0.5);
  EXPECT_EQ(families[1].type, prometheus::MetricType::Counter);
  EXPECT_EQ(families[1].metric[0].counter.value, 2);
  EXPECT_EQ(families[2].type, prometheus::MetricType::Gauge);
  EXPECT_EQ(families[2].metric[0].gauge.value, 4);
  EXPECT_EQ(families[2].name, "tensorferry_waiting_pulls");
}

}  // namespace
}  // namespace tensorferry
