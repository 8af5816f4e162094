// What tests of the doctor's checks expect.
//
//   ExpectFinding(Examine("memlock", host), Verdict::kDegraded, "8 MiB");
//
// Thread-safety: none.
#ifndef TENSORFERRY_TOOLS_DOCTOR_FINDING_TESTING_H_
#define TENSORFERRY_TOOLS_DOCTOR_FINDING_TESTING_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tools/doctor/finding.h"

namespace tensorferry::tools {

// Says what is wrong and what to do; `needle` stands in the cause.
inline void ExpectFinding(const Finding& finding, Verdict verdict, const std::string& needle) {
  EXPECT_EQ(finding.verdict, verdict) << finding.evidence;
  EXPECT_THAT(finding.cause, testing::HasSubstr(needle));
  EXPECT_NE(finding.fix, "");
  EXPECT_NE(finding.evidence, "");
}

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_DOCTOR_FINDING_TESTING_H_
