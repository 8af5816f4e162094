// What a check of `tensorferry doctor` came to, and where it counts.
//
//   Finding finding{.ways = WaysOf({"nixl"}), .evidence = "ulimit -l is 8 MiB"};
//   if (too_little) finding.Degraded("too little to …", "raise it: …");
//
// A way is a place in the doctor's matrix: a transport, which says the lane, and a direction. Its
// verdict is the worst of all findings about it. A lane is on when one of its transports is off in
// no direction.
// Thread-safety: values and pure functions.
#ifndef TENSORFERRY_TOOLS_DOCTOR_FINDING_H_
#define TENSORFERRY_TOOLS_DOCTOR_FINDING_H_

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensorferry/policy/lane.h"

namespace tensorferry::tools {

// The worse the larger.
enum class Verdict : uint8_t { kOk, kDegraded, kOff };
// As a gateway, which sends, and as a worker, which receives.
enum class Direction : uint8_t { kSend, kReceive };

std::string_view VerdictName(Verdict verdict);
std::string_view DirectionName(Direction direction);

struct Way {
  std::string transport = {};
  Direction direction = Direction::kSend;

  Lane lane() const { return *LaneOfTransport(transport); }
  friend bool operator==(const Way&, const Way&) = default;
};

std::vector<Way> WaysOf(std::initializer_list<std::string_view> transports, Direction direction);
// In both directions.
std::vector<Way> WaysOf(std::initializer_list<std::string_view> transports);

struct Finding {
  std::string_view check = {};  // its name: a contract, as the verdicts are
  std::vector<Way> ways = {};
  Verdict verdict = Verdict::kOk;
  // What was seen, always; what is wrong, and what to do, unless it is ok.
  std::string evidence = {};
  std::string cause = {};
  std::string fix = {};

  Finding& Degraded(std::string why, std::string what_to_do);
  Finding& Off(std::string why, std::string what_to_do);
};

// Of what the findings say about it; ok when none does.
Verdict VerdictOf(std::span<const Finding> findings, const Way& way);
// Of the ways that the findings name. A lane of which they name none is off.
Verdict VerdictOf(std::span<const Finding> findings, Lane lane);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_DOCTOR_FINDING_H_
