// Says what a benchmark measured: a table for people, JSON lines, or CSV.
//
//   Report report(Report::Format::kTable, PrintLine);
//   report.Measured(plan, where, measurement);
//   report.Failed(plan, status);              // a row without any figure
//
// Thread-safety: none.
#ifndef TENSORFERRY_TOOLS_BENCH_REPORT_H_
#define TENSORFERRY_TOOLS_BENCH_REPORT_H_

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "tools/bench/measurer.h"

namespace tensorferry::tools::bench {

// The machines and versions that a run is about.
struct Where {
  std::string machine, version;                  // of the worker
  std::string gateway_machine, gateway_version;  // or the command of a gateway that is not ours
};

// One flat object. Keys are stable, and units are in their names.
nlohmann::ordered_json RowOf(const Plan& plan, const Where& where, const Measurement& measured);
// The same keys up to what was measured, then `error` and `code`.
nlohmann::ordered_json RowOf(const Plan& plan, const absl::Status& status);
// RFC 4180; null is empty.
std::string CsvLine(const nlohmann::ordered_json& row);

class Report {
 public:
  enum class Format { kTable, kJson, kCsv };
  using Print = std::function<void(std::string_view line)>;
  Report(Format format, Print print) : format_(format), print_(std::move(print)) {}

  void Measured(const Plan& plan, const Where& where, const Measurement& measured);
  void Failed(const Plan& plan, const absl::Status& status);

 private:
  const Format format_;
  const Print print_;
  std::string where_;  // that the table has said
  bool header_ = false;
};

}  // namespace tensorferry::tools::bench

#endif  // TENSORFERRY_TOOLS_BENCH_REPORT_H_
