// What this gateway and one worker do not agree about: one function per check, by name.
//
//   for (const PeerCheck& check : PeerChecks()) {
//     Finding finding = check.examine(facts, settings, *worker);
//   }
//
// They compare what both ends say of themselves, before anything is sent. A stock worker says
// little, and what is not said disagrees with nothing.
// Thread-safety: pure functions.
#ifndef TENSORFERRY_TOOLS_DOCTOR_PEER_CHECKS_H_
#define TENSORFERRY_TOOLS_DOCTOR_PEER_CHECKS_H_

#include <span>
#include <string_view>

#include "tensorferry/policy/capabilities.h"
#include "tensorferry/policy/settings.h"
#include "tools/doctor/finding.h"
#include "tools/doctor/host_facts.h"

namespace tensorferry::tools {

struct PeerCheck {
  std::string_view name;
  Finding (*examine)(const HostFacts& here, const Settings&, const Capabilities& worker);
};

std::span<const PeerCheck> PeerChecks();

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_DOCTOR_PEER_CHECKS_H_
