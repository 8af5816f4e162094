#include "tools/doctor/finding.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "absl/strings/str_format.h"
#include "tensorferry/base/contains.h"
#include "tensorferry/base/text.h"

namespace tensorferry::tools {

std::string_view VerdictName(Verdict verdict) {
  constexpr std::array<std::string_view, 3> kNames = {"ok", "degraded", "off"};
  return kNames.at(static_cast<size_t>(verdict));
}

std::string_view DirectionName(Direction direction) {
  return direction == Direction::kSend ? "send" : "receive";
}

std::vector<Way> WaysOf(std::initializer_list<std::string_view> transports, Direction direction) {
  std::vector<Way> ways;
  for (const std::string_view transport : transports) {
    ways.push_back({.transport = std::string(transport), .direction = direction});
  }
  return ways;
}

std::vector<Way> WaysOf(std::initializer_list<std::string_view> transports) {
  std::vector<Way> ways;
  for (const std::string_view transport : transports) {
    for (const Direction direction : {Direction::kSend, Direction::kReceive}) {
      ways.push_back({.transport = std::string(transport), .direction = direction});
    }
  }
  return ways;
}

Finding& Finding::Degraded(std::string why, std::string what_to_do) {
  verdict = Verdict::kDegraded;
  cause = std::move(why);
  fix = std::move(what_to_do);
  return *this;
}

Finding& Finding::Off(std::string why, std::string what_to_do) {
  verdict = Verdict::kOff;
  cause = std::move(why);
  fix = std::move(what_to_do);
  return *this;
}

Verdict VerdictOf(std::span<const Finding> findings, const Way& way) {
  Verdict worst = Verdict::kOk;
  for (const Finding& finding : findings) {
    if (Contains(finding.ways, way)) worst = std::max(worst, finding.verdict);
  }
  return worst;
}

Verdict VerdictOf(std::span<const Finding> findings, Lane lane) {
  std::map<std::string, Verdict> transports;
  for (const Finding& finding : findings) {
    for (const Way& way : finding.ways) {
      if (way.lane() != lane) continue;
      Verdict& worst = transports[way.transport];
      worst = std::max(worst, finding.verdict);
    }
  }
  Verdict best = Verdict::kOff;
  for (const auto& [transport, verdict] : transports) best = std::min(best, verdict);
  return best;
}

std::string BytesText(uint64_t bytes) {
  constexpr std::array<std::string_view, 6> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return StrCat(bytes, " B");
  auto value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  const bool whole = value == static_cast<double>(static_cast<uint64_t>(value));
  return absl::StrFormat("%.*f %s", whole ? 0 : 1, value, AbslView(kUnits.at(unit)));
}

}  // namespace tensorferry::tools
