// What of this machine stands in the way of a lane: one function per check, by name.
//
//   for (const HostCheck& check : HostChecks()) {
//     Finding finding = check.examine(facts, settings);
//   }
//
// They say what stands in the way of what the settings ask for, also where a small test tensor gets
// through. docs/doctor.md has a section for each, by its name.
// Thread-safety: pure functions.
#ifndef TENSORFERRY_TOOLS_DOCTOR_HOST_CHECKS_H_
#define TENSORFERRY_TOOLS_DOCTOR_HOST_CHECKS_H_

#include <span>
#include <string_view>

#include "tensorferry/policy/settings.h"
#include "tools/doctor/finding.h"
#include "tools/doctor/host_facts.h"

namespace tensorferry::tools {

struct HostCheck {
  std::string_view name;
  Finding (*examine)(const HostFacts&, const Settings&);
};

std::span<const HostCheck> HostChecks();

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_DOCTOR_HOST_CHECKS_H_
