// What `tensorferry doctor` prints: for programs every finding on every way that it is about, for
// people a matrix, what to mend, and what was seen.
//
//   PrintJson(JsonReport(findings));
//   for (const std::string& line : HumanReport(title, findings)) PrintLine(line);
//
// Thread-safety: pure functions.
#ifndef TENSORFERRY_TOOLS_DOCTOR_REPORT_H_
#define TENSORFERRY_TOOLS_DOCTOR_REPORT_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"
#include "tools/doctor/finding.h"

namespace tensorferry::tools {

// {"checks":[{"check","lane","transport","direction","verdict","cause","evidence","fix"}]}
nlohmann::ordered_json JsonReport(std::span<const Finding> findings);
std::vector<std::string> HumanReport(std::string_view title, std::span<const Finding> findings);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_DOCTOR_REPORT_H_
