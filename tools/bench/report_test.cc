#include "tools/bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensorferry/base/error.h"

namespace tensorferry::tools::bench {
namespace {

using testing::HasSubstr;
using testing::Not;

const Plan kPlan = {.engine = {.name = "tcp", .lane = Lane::kRemote, .transport = "tcp"},
                    .nbytes = 9 << 20,
                    .streams = 2,
                    .workers = 2};
const Where kHere = {.machine = "\"A\", 2 cores",
                     .version = "1.2",
                     .gateway_machine = "B",
                     .gateway_version = "1.2"};
const Measurement kMeasured = {.transport = "tcp",
                               .latency_us = {.count = 40, .p50 = 12.5, .p99 = 80},
                               .gb_per_s = 4,
                               .gateway_peak_bytes = 3 << 20,
                               .gateway_idle_percent = 0.25};

std::vector<std::string> Printed(Report::Format format, const auto& use) {
  std::vector<std::string> lines;
  Report report(format, [&](std::string_view line) { lines.emplace_back(line); });
  use(report);
  return lines;
}

TEST(BenchReport, AnObjectALine) {
  const auto lines = Printed(Report::Format::kJson, [](Report& report) {
    report.Measured(kPlan, kHere, kMeasured);
    report.Failed(kPlan, MakeError(Reason::kChecksum, "other bytes"));
  });
  ASSERT_EQ(lines.size(), 2u);
  const auto row = nlohmann::json::parse(lines[0]);
  EXPECT_EQ(row["lane"], "remote");
  EXPECT_EQ(row["nbytes"], 9 << 20);
  EXPECT_EQ(row["p50_us"], 12.5);
  EXPECT_EQ(row["machine"], "\"A\", 2 cores");
  EXPECT_TRUE(row["gateway_idle_percent"].is_null()) << "not looked at";
  const auto failed = nlohmann::json::parse(lines[1]);
  EXPECT_EQ(failed["code"], "checksum_mismatch");
  for (const auto& [key, value] : failed.items()) EXPECT_THAT(key, Not(HasSubstr("_us")));
}

TEST(BenchReport, CsvHasOneHeaderAndFiguresAlone) {
  const auto lines = Printed(Report::Format::kCsv, [](Report& report) {
    report.Failed(kPlan, MakeError(Reason::kChecksum, "other bytes"));
    report.Measured(kPlan, kHere, kMeasured);
    report.Measured(kPlan, kHere, kMeasured);
  });
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[0], testing::StartsWith("lane,engine,rpc,"));
  EXPECT_THAT(lines[1], testing::StartsWith("remote,tcp,false,"));
  EXPECT_THAT(lines[1], HasSubstr(",\"\"\"A\"\", 2 cores\",1.2,B,1.2"));
  EXPECT_EQ(lines[1], lines[2]);
  const auto commas = [](const std::string& s) { return std::count(s.begin(), s.end(), ','); };
  EXPECT_EQ(commas(lines[1]), commas(lines[0]) + 1) << "and the one inside the quotes";
}

TEST(BenchReport, CsvFieldsAreQuotedWhereTheyMustBe) {
  EXPECT_EQ(CsvLine({{"a", nullptr}, {"b", "x\ny"}, {"c", 1.5}, {"d", true}}),
            ",\"x\ny\",1.5,true");
}

TEST(BenchReport, TheTableNamesTheMachineOnceAndWhatFailed) {
  const auto lines = Printed(Report::Format::kTable, [](Report& report) {
    report.Measured(kPlan, kHere, kMeasured);
    report.Measured(kPlan, kHere, kMeasured);
    report.Failed(kPlan, MakeError(Reason::kLaneOff, "no such engine here"));
  });
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0], "tensorferry 1.2, \"A\", 2 cores; gateway: 1.2, B");
  EXPECT_THAT(lines[2], HasSubstr("tcp x2"));
  EXPECT_THAT(lines[2], HasSubstr("9 MiB"));
  EXPECT_THAT(lines[2], HasSubstr("12.5"));
  EXPECT_THAT(lines[4], HasSubstr("no figure: no such engine here (lane_off)"));
}

}  // namespace
}  // namespace tensorferry::tools::bench
