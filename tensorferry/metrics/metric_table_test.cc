#include "tensorferry/metrics/metric_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry {
namespace {

constexpr ValueSet kAllSets[] = {ValueSet::kRuntimes,         ValueSet::kLanes,
                                 ValueSet::kTransports,       ValueSet::kResults,
                                 ValueSet::kLaneReasons,      ValueSet::kEnds,
                                 ValueSet::kArenaStates,      ValueSet::kLandingStates,
                                 ValueSet::kLeaseStates,      ValueSet::kLeaseEndCauses,
                                 ValueSet::kNotificationKinds};

std::string NameOf(LabelValue value) {
  return std::string(NameOfValue(value.set(), value.position()));
}

std::vector<std::string> LabelNames(const MetricSpec& spec) {
  std::vector<std::string> out;
  for (const Label label : spec.labels) {
    std::vector<LabelPair> pairs;
    AppendLabels(label, 0, &pairs);
    for (const auto& [name, value] : pairs) out.emplace_back(name);
  }
  return out;
}

TEST(MetricTableTest, NamesKeepPrometheussConventions) {
  std::set<std::string_view> names;
  for (const MetricSpec& spec : MetricTable()) {
    SCOPED_TRACE(spec.name);
    EXPECT_EQ(SpecOf(spec.id).name, spec.name);
    EXPECT_TRUE(names.insert(spec.name).second) << "twice";
    EXPECT_TRUE(spec.name.starts_with("tensorferry_") || spec.name.starts_with("smg_mm_"));
    EXPECT_TRUE(std::ranges::all_of(
        spec.name, [](unsigned char c) { return std::islower(c) || std::isdigit(c) || c == '_'; }));
    EXPECT_EQ(spec.name.ends_with("_total"), spec.kind == MetricKind::kCounter);
    EXPECT_EQ(spec.name.ends_with("_seconds"), spec.kind == MetricKind::kHistogram);
    EXPECT_FALSE(spec.help.empty());
    const std::vector<std::string> labels = LabelNames(spec);
    EXPECT_EQ(std::set<std::string>(labels.begin(), labels.end()).size(), labels.size());
  }
  EXPECT_EQ(names.size(), kMetricCount);
}

TEST(MetricTableTest, SmgsMetricsHaveSmgsLabels) {
  EXPECT_THAT(LabelNames(SpecOf(Metric::kMessageTensors)), testing::ElementsAre("runtime", "path"));
  EXPECT_THAT(LabelNames(SpecOf(Metric::kMessageBytes)), testing::ElementsAre("runtime", "path"));
  EXPECT_THAT(LabelNames(SpecOf(Metric::kShmWriteFailures)), testing::ElementsAre("runtime"));
}

// Two values of one name would be two series that nobody can tell apart. Results are the exception:
// codes that are called as a reason are counted as that.
TEST(MetricTableTest, ValuesHaveNamesOfTheirOwn) {
  for (const ValueSet set : kAllSets) {
    std::set<std::string_view> names;
    for (size_t i = 0; i < SizeOf(set); ++i) {
      const std::string_view name = NameOfValue(set, i);
      EXPECT_FALSE(name.empty());
      if (set != ValueSet::kResults) {
        EXPECT_TRUE(names.insert(name).second) << name;
      }
    }
  }
}

TEST(MetricTableTest, EveryResultIsCalledAsItsStatus) {
  EXPECT_EQ(NameOf(absl::OkStatus()), "ok");
  EXPECT_EQ(NameOf(MakeError(Reason::kBadInput, "x")), "bad_input");
  EXPECT_EQ(NameOf(Reason::kArenaFull), "arena_full");
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "x");
    EXPECT_EQ(NameOf(status), ReasonNameOf(status));
  }
  EXPECT_EQ(LabelValue(absl::CancelledError("x")).position(),
            LabelValue(Reason::kCancelled).position());
  EXPECT_EQ(NameOf(absl::Status(static_cast<absl::StatusCode>(99), "x")), "unknown");
}

TEST(MetricTableTest, ATransportBringsItsLane) {
  const auto labels = [](std::string_view transport) {
    std::vector<LabelPair> out;
    AppendLabels(Label::kLaneTransport, LabelValue::Transport(transport).position(), &out);
    return out;
  };
  using testing::ElementsAre;
  for (const std::string_view transport : kAllTransports) {
    ASSERT_TRUE(LaneOfTransport(transport).has_value()) << transport;
    EXPECT_THAT(labels(transport),
                ElementsAre(LabelPair("lane", LaneName(*LaneOfTransport(transport))),
                            LabelPair("transport", transport)));
  }
  // What a peer says is no label.
  EXPECT_THAT(labels("\n{x=\"y\"} 1"),
              ElementsAre(LabelPair("lane", "remote"), LabelPair("transport", "other")));
  EXPECT_THAT(labels(""), ElementsAre(LabelPair("lane", "none"), LabelPair("transport", "none")));
}

// The rows of docs/metrics.md, of this table.
std::string TableText() {
  std::string out = "| name | type | end | labels | |\n|---|---|---|---|---|\n";
  for (const MetricSpec& spec : MetricTable()) {
    std::string labels;
    for (const std::string& name : LabelNames(spec)) {
      StrAppend(&labels, labels.empty() ? "" : ", ", "`", name, "`");
    }
    const std::string_view end = spec.end == MetricEnd::kBoth      ? "both"
                                 : spec.end == MetricEnd::kGateway ? "gateway"
                                                                   : "worker";
    StrAppend(&out, "| `", spec.name, "` | ", MetricKindName(spec.kind), " | ", end, " | ", labels,
              " | ", spec.help, " |\n");
  }
  return out;
}

TEST(MetricTableTest, TheDocumentHasTheTable) {
  std::ifstream file(TENSORFERRY_SOURCE_DIR "/docs/metrics.md");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_TRUE(text.find(TableText()) != std::string::npos) << "docs/metrics.md must hold this:\n"
                                                           << TableText();
}

}  // namespace
}  // namespace tensorferry
