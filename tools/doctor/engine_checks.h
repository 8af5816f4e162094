// Which libraries the engines find on this machine: one function per engine.
//
//   for (const EngineCheck& check : EngineChecks()) check.examine(flags);   // path, version, symbols
//
// An engine with a library of its own has its check here, and a line in EngineChecks.
// Thread-safety: none; opens the library, which stays loaded.
#ifndef TENSORFERRY_TOOLS_DOCTOR_ENGINE_CHECKS_H_
#define TENSORFERRY_TOOLS_DOCTOR_ENGINE_CHECKS_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/doctor/finding.h"
#include "tools/library_engines.h"

namespace tensorferry::tools {

struct EngineCheck {
  std::string_view name;
  std::string_view transport;  // examined only with it
  Finding (*examine)(const EngineFlags&);
};

std::span<const EngineCheck> EngineChecks();

// What lies beside a NIXL library.
struct NixlSurroundings {
  std::string version = {};               // of the wheel; empty: not known
  std::vector<std::string> plugins = {};  // "UCX", "POSIX"
};
// `plugin_dir` empty: the folder `plugins` beside the library.
NixlSurroundings LookAroundNixl(const std::string& library, const std::string& plugin_dir);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_DOCTOR_ENGINE_CHECKS_H_
