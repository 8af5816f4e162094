#include "tools/doctor/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"

namespace tensorferry::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Finding Arrived(std::vector<Way> ways) {
  return {.check = "transfer", .ways = std::move(ways), .evidence = "1 MiB in 1.00 ms"};
}

TEST(JsonReport, EveryFindingOnEveryWay) {
  Finding finding{.check = "memlock", .ways = WaysOf({"nixl"}), .evidence = "8 MiB"};
  finding.Degraded("too little", "raise it");
  const std::vector<Finding> findings = {finding};
  EXPECT_EQ(JsonReport(findings).dump(),
            R"({"checks":[{"check":"memlock","lane":"remote","transport":"nixl",)"
            R"("direction":"send","verdict":"degraded","cause":"too little","evidence":"8 MiB",)"
            R"("fix":"raise it"},{"check":"memlock","lane":"remote","transport":"nixl",)"
            R"("direction":"receive","verdict":"degraded","cause":"too little",)"
            R"("evidence":"8 MiB","fix":"raise it"}]})");
}

TEST(HumanReport, AHealthyHostHasACalmPage) {
  const std::vector<Finding> findings = {
      Arrived(WaysOf({"grpc"})),
      Arrived(WaysOf({"tcp"})),
      {.check = "memfd", .ways = WaysOf({"tcp"}), .evidence = "can be made"}};
  EXPECT_THAT(HumanReport("title", findings),
              ElementsAre("title", "",                                               //
                          "lane    transport send      receive",                     //
                          "inline  grpc      ok        ok        1 MiB in 1.00 ms",  //
                          "remote  tcp       ok        ok        1 MiB in 1.00 ms",  //
                          "", "memfd           can be made", "", "Nothing stands in the way."));
}

TEST(HumanReport, TheWorstComesFirstAndEachThingOnce) {
  Finding degraded{.check = "ttl", .ways = WaysOf({"tcp"}, Direction::kSend), .evidence = "e1"};
  degraded.Degraded("c1", "f1");
  Finding off{.check = "transfer", .ways = WaysOf({"local"}, Direction::kSend), .evidence = "e2"};
  off.Off("c2", "f2");
  Finding same = off;
  same.ways = WaysOf({"file"}, Direction::kSend);
  const std::vector<Finding> findings = {Arrived(WaysOf({"tcp"}, Direction::kSend)), degraded, off,
                                         same};
  const std::string page = absl::StrJoin(HumanReport("title", findings), "\n");
  EXPECT_THAT(page, HasSubstr("off  lane shm over local and file: send (transfer)\n"
                              "  cause:    c2\n  evidence: e2\n  fix:      f2\n\n"
                              "degraded  lane remote over tcp: send (ttl)\n  cause:    c1\n"));
  EXPECT_THAT(page, HasSubstr("remote  tcp       degraded  -         send 1 MiB in 1.00 ms\n"));
  EXPECT_EQ(page.find("c2"), page.rfind("c2"));
  EXPECT_THAT(page, testing::Not(HasSubstr("Nothing stands in the way")));
}

}  // namespace
}  // namespace tensorferry::tools
