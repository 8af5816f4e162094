#include "tools/doctor/report.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tensorferry/base/contains.h"
#include "tensorferry/base/text.h"

namespace tensorferry::tools {
namespace {

// In the order in which the findings name them, which is that of the lanes.
std::vector<std::string> TransportsOf(std::span<const Finding> findings) {
  std::vector<std::string> out;
  for (const Finding& finding : findings) {
    for (const Way& way : finding.ways) {
      if (!Contains(out, way.transport)) out.push_back(way.transport);
    }
  }
  std::stable_sort(out.begin(), out.end(), [](const std::string& a, const std::string& b) {
    return *LaneOfTransport(a) < *LaneOfTransport(b);
  });
  return out;
}

bool Examined(std::span<const Finding> findings, const Way& way) {
  return std::any_of(findings.begin(), findings.end(),
                     [&](const Finding& f) { return Contains(f.ways, way); });
}

// Of test tensors that arrived. One may have shown both directions.
std::string EvidenceOfTransfers(std::span<const Finding> findings, const std::string& transport) {
  std::vector<std::string> out;
  for (const Finding& finding : findings) {
    const auto way = std::find_if(finding.ways.begin(), finding.ways.end(),
                                  [&](const Way& w) { return w.transport == transport; });
    if (way == finding.ways.end() || finding.check != "transfer" ||
        finding.verdict != Verdict::kOk) {
      continue;
    }
    out.push_back(finding.ways.size() > 1
                      ? finding.evidence
                      : StrCat(DirectionName(way->direction), " ", finding.evidence));
  }
  return absl::StrJoin(out, "; ");
}

// "lane shm over local and file, lane remote over tcp: send and receive"
std::string WaysText(std::span<const Way> ways) {
  std::vector<std::string> lanes;
  std::vector<std::string> directions;
  for (const Lane lane : kAllLanes) {
    std::vector<std::string> transports;
    for (const Way& way : ways) {
      if (way.lane() == lane && !Contains(transports, way.transport)) {
        transports.push_back(way.transport);
      }
    }
    if (transports.empty()) continue;
    lanes.push_back(StrCat("lane ", LaneName(lane), " over ", absl::StrJoin(transports, " and ")));
  }
  for (const Direction direction : {Direction::kSend, Direction::kReceive}) {
    if (std::any_of(ways.begin(), ways.end(),
                    [&](const Way& w) { return w.direction == direction; })) {
      directions.emplace_back(DirectionName(direction));
    }
  }
  return StrCat(absl::StrJoin(lanes, ", "), ": ", absl::StrJoin(directions, " and "));
}

// What is to be mended, the worst first, and each thing once: what a check found on several ways
// for one cause has one mending.
std::vector<Finding> ToMend(std::span<const Finding> findings) {
  std::vector<Finding> out;
  for (const Finding& finding : findings) {
    if (finding.verdict == Verdict::kOk) continue;
    const auto same = std::find_if(out.begin(), out.end(), [&](const Finding& f) {
      return f.check == finding.check && f.verdict == finding.verdict && f.cause == finding.cause &&
             f.fix == finding.fix;
    });
    if (same == out.end()) {
      out.push_back(finding);
    } else {
      same->ways.insert(same->ways.end(), finding.ways.begin(), finding.ways.end());
    }
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Finding& a, const Finding& b) { return a.verdict > b.verdict; });
  return out;
}

std::vector<std::string> Matrix(std::span<const Finding> findings) {
  std::vector<std::string> out = {
      absl::StrFormat("%-7s %-9s %-9s %s", "lane", "transport", "send", "receive")};
  for (const std::string& transport : TransportsOf(findings)) {
    const auto cell = [&](Direction direction) -> std::string {
      const Way way{.transport = transport, .direction = direction};
      return Examined(findings, way) ? std::string(VerdictName(VerdictOf(findings, way))) : "-";
    };
    const std::string line =
        absl::StrFormat("%-7s %-9s %-9s %-9s %s", AbslView(LaneName(*LaneOfTransport(transport))),
                        transport, cell(Direction::kSend), cell(Direction::kReceive),
                        EvidenceOfTransfers(findings, transport));
    out.emplace_back(line, 0, line.find_last_not_of(' ') + 1);
  }
  return out;
}

}  // namespace

nlohmann::ordered_json JsonReport(std::span<const Finding> findings) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    for (const Way& way : finding.ways) {
      rows.push_back({{"check", finding.check},
                      {"lane", LaneName(way.lane())},
                      {"transport", way.transport},
                      {"direction", DirectionName(way.direction)},
                      {"verdict", VerdictName(finding.verdict)},
                      {"cause", finding.cause},
                      {"evidence", finding.evidence},
                      {"fix", finding.fix}});
    }
  }
  return {{"checks", std::move(rows)}};
}

std::vector<std::string> HumanReport(std::string_view title, std::span<const Finding> findings) {
  std::vector<std::string> out = {std::string(title), ""};
  for (std::string& line : Matrix(findings)) out.push_back(std::move(line));
  const std::vector<Finding> to_mend = ToMend(findings);
  for (const Finding& finding : to_mend) {
    out.emplace_back("");
    out.push_back(StrCat(VerdictName(finding.verdict), "  ", WaysText(finding.ways), " (",
                         finding.check, ")"));
    out.push_back(StrCat("  cause:    ", finding.cause));
    out.push_back(StrCat("  evidence: ", finding.evidence));
    out.push_back(StrCat("  fix:      ", finding.fix));
  }
  out.emplace_back("");
  for (const Finding& finding : findings) {
    if (finding.check == "transfer" || finding.verdict != Verdict::kOk) continue;
    out.push_back(absl::StrFormat("%-15s %s", AbslView(finding.check), finding.evidence));
  }
  out.emplace_back("");
  out.emplace_back(to_mend.empty() ? "Nothing stands in the way."
                                   : "What each of these means: docs/doctor.md");
  return out;
}

}  // namespace tensorferry::tools
