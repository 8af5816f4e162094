#include "tools/doctor/finding.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "tensorferry/base/contains.h"

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

}  // namespace tensorferry::tools
