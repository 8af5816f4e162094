#include "tools/bench/report.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tools/bytes_text.h"

namespace tensorferry::tools::bench {
namespace {

using Json = nlohmann::ordered_json;

Json PlanOf(const Plan& plan) {
  return {{"lane", plan.engine.yardstick ? Json(nullptr) : Json(LaneName(plan.engine.lane))},
          {"engine", plan.engine.name},
          {"rpc", plan.rpc},
          {"copy", plan.copy},
          {"copy_in", plan.copy_in},
          {"one_by_one", plan.one_by_one},
          {"nbytes", plan.nbytes},
          {"concurrency", plan.streams},
          {"workers", plan.workers},
          {"batch", plan.batch}};
}

// What the table shows of a plan, apart from its size.
std::string Name(const Plan& plan) {
  std::string name = plan.engine.name;
  if (plan.rpc && !plan.engine.calls()) name += " rpc";
  if (plan.copy) name += " copy";
  if (plan.copy_in) name += " export";
  if (plan.streams > 1) StrAppend(&name, " x", plan.streams);
  if (plan.batch > 1) StrAppend(&name, " of ", plan.batch);
  if (plan.one_by_one) name += " one by one";
  return name;
}

std::string CsvField(const Json& value) {
  if (value.is_null()) return "";
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

constexpr char kHeader[] =
    "                                                  µs                          CPU s/GiB      "
    "peak MiB     µs of the median\n"
    "engine               size   count     p50     p90     p99     max   GB/s  gatew. worker  "
    "gatew. worker  gatew. on way worker";

}  // namespace

Json RowOf(const Plan& plan, const Where& where, const Measurement& m) {
  Json row = PlanOf(plan);
  row.update(Json{{"transport", m.transport},
                  {"count", m.latency_us.count},
                  {"p50_us", m.latency_us.p50},
                  {"p90_us", m.latency_us.p90},
                  {"p99_us", m.latency_us.p99},
                  {"max_us", m.latency_us.max},
                  {"gb_per_s", m.gb_per_s},
                  {"gateway_us", m.gateway_us},
                  {"handover_us", m.handover_us},
                  {"worker_us", m.worker_us},
                  {"gateway_cpu_s_per_gib", m.gateway_cpu_s_per_gib},
                  {"worker_cpu_s_per_gib", m.worker_cpu_s_per_gib},
                  {"gateway_peak_bytes", m.gateway_peak_bytes},
                  {"worker_peak_bytes", m.worker_peak_bytes},
                  {"gateway_faults", m.gateway_faults},
                  {"arena_bytes_per_tensor", m.arena_bytes_per_tensor},
                  {"gateway_idle_percent", Json(nullptr)},
                  {"worker_idle_percent", Json(nullptr)},
                  {"clock_error_us", static_cast<double>(m.clock_error.count()) * 1e-3},
                  {"machine", where.machine},
                  {"version", where.version},
                  {"gateway_machine", where.gateway_machine},
                  {"gateway_version", where.gateway_version}});
  if (plan.idle > Duration::zero()) {
    row["gateway_idle_percent"] = m.gateway_idle_percent;
    row["worker_idle_percent"] = m.worker_idle_percent;
  }
  return row;
}

Json RowOf(const Plan& plan, const absl::Status& status) {
  Json row = PlanOf(plan);
  row["error"] = std::string(status.message());
  row["code"] = ReasonNameOf(status);
  return row;
}

std::string CsvLine(const Json& row) {
  std::vector<std::string> fields;
  for (const auto& [key, value] : row.items()) fields.push_back(CsvField(value));
  return absl::StrJoin(fields, ",");
}

void Report::Measured(const Plan& plan, const Where& where, const Measurement& m) {
  const Json row = RowOf(plan, where, m);
  if (format_ == Format::kJson) return print_(row.dump());
  if (format_ == Format::kCsv) {
    if (!std::exchange(header_, true)) {
      std::vector<std::string> keys;
      for (const auto& [key, value] : row.items()) keys.push_back(key);
      print_(absl::StrJoin(keys, ","));
    }
    return print_(CsvLine(row));
  }
  std::string at = StrCat("tensorferry ", where.version, ", ", where.machine);
  if (where.gateway_machine != where.machine || where.gateway_version != where.version) {
    StrAppend(&at, "; gateway: ", where.gateway_version, ", ", where.gateway_machine);
  }
  if (where_ != at) print_(at);
  where_ = at;
  if (!std::exchange(header_, true)) print_(kHeader);
  const auto mib = [](uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  print_(absl::StrFormat(
      "%-16s %8s %7d %7.1f %7.1f %7.1f %7.1f %6.2f  %6.3f %6.3f  %6.0f %6.0f  %6.1f %6.1f %6.1f",
      Name(plan), BytesText(plan.nbytes), m.latency_us.count, m.latency_us.p50, m.latency_us.p90,
      m.latency_us.p99, m.latency_us.max, m.gb_per_s, m.gateway_cpu_s_per_gib,
      m.worker_cpu_s_per_gib, mib(m.gateway_peak_bytes), mib(m.worker_peak_bytes), m.gateway_us,
      m.handover_us, m.worker_us));
  if (plan.idle > Duration::zero()) {
    print_(absl::StrFormat("  idle: gateway %.2f %%, worker %.2f %% of a core",
                           m.gateway_idle_percent, m.worker_idle_percent));
  }
}

void Report::Failed(const Plan& plan, const absl::Status& status) {
  if (format_ == Format::kJson) return print_(RowOf(plan, status).dump());
  // A CSV has rows of figures alone: standard error tells.
  if (format_ == Format::kCsv) return;
  print_(absl::StrFormat("%-16s %8s  no figure: %s (%s)", Name(plan), BytesText(plan.nbytes),
                         status.message(), AbslView(ReasonNameOf(status))));
}

}  // namespace tensorferry::tools::bench
