// Everything that `tensorferry doctor` looks at, as one list of findings.
//
//   std::vector<Finding> findings = Examine({.peer = "10.0.0.7:50051"}, settings);
//
// Real tensors first, then what both ends say, then this machine. Without a peer a worker in this
// process stands in for it; with one, that worker still shows what this host could receive. An
// engine is a word in `transports`; one with a library of its own also a line in library_engines.cc
// and one in engine_checks.cc.
// Thread-safety: none; takes as long as the transfers take.
#ifndef TENSORFERRY_TOOLS_DOCTOR_EXAMINATION_H_
#define TENSORFERRY_TOOLS_DOCTOR_EXAMINATION_H_

#include <string>
#include <vector>

#include "tensorferry/base/clock.h"
#include "tensorferry/policy/settings.h"
#include "tools/doctor/finding.h"
#include "tools/library_engines.h"

namespace tensorferry::tools {

struct ExaminationOptions {
  std::string peer = {};    // HOST:PORT of a worker; empty: none
  std::string listen = {};  // IP:PORT where it fetches from; empty: as the settings say
  // Beside grpc, in the order of the lanes.
  std::vector<std::string> transports = {"local", "file", "tcp", "ucx", "nixl"};
  Duration timeout = std::chrono::seconds(5);  // of each transfer
  EngineFlags flags = {};
};

std::vector<Finding> Examine(const ExaminationOptions& options, const Settings& settings);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_DOCTOR_EXAMINATION_H_
