#include "tools/doctor/finding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tensorferry::tools {
namespace {

Finding Of(std::vector<Way> ways, Verdict verdict) {
  return {.ways = std::move(ways), .verdict = verdict};
}

TEST(Finding, AWayIsAsBadAsTheWorstThatIsSaidOfIt) {
  const std::vector<Finding> findings = {
      Of(WaysOf({"local", "tcp"}), Verdict::kOk),
      Of(WaysOf({"tcp"}, Direction::kSend), Verdict::kOff),
      Of(WaysOf({"tcp"}), Verdict::kDegraded),
  };
  EXPECT_EQ(VerdictOf(findings, Way{"tcp", Direction::kSend}), Verdict::kOff);
  EXPECT_EQ(VerdictOf(findings, Way{"tcp", Direction::kReceive}), Verdict::kDegraded);
  EXPECT_EQ(VerdictOf(findings, Way{"local", Direction::kSend}), Verdict::kOk);
}

TEST(Finding, ALaneIsAsGoodAsItsBestTransport) {
  const std::vector<Finding> findings = {
      Of(WaysOf({"file", "nixl"}), Verdict::kOff),
      Of(WaysOf({"local"}), Verdict::kOk),
      Of(WaysOf({"tcp"}, Direction::kReceive), Verdict::kOff),
  };
  EXPECT_EQ(VerdictOf(findings, Lane::kShm), Verdict::kOk);
  // One direction is not enough.
  EXPECT_EQ(VerdictOf(findings, Lane::kRemote), Verdict::kOff);
}

TEST(Finding, ALaneThatWasNotExaminedIsOff) {
  const std::vector<Finding> findings = {Of(WaysOf({"local"}), Verdict::kOk)};
  EXPECT_EQ(VerdictOf(findings, Lane::kRemote), Verdict::kOff);
}

}  // namespace
}  // namespace tensorferry::tools
