// A worker in this process, for what can be tried without a peer: every lane that this host could
// receive by.
//
//   absl::StatusOr<std::unique_ptr<OwnWorker>> worker = OwnWorker::Start({.transports = {"tcp"}});
//   GatewaySide::Create({.to = (*worker)->address(), ...});
//
// It listens at a free port of the loopback interface, and answers Encode as `tensorferry worker`
// does.
// Thread-safety: one thread; its server has threads of its own.
#ifndef TENSORFERRY_TOOLS_DOCTOR_OWN_WORKER_H_
#define TENSORFERRY_TOOLS_DOCTOR_OWN_WORKER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/base/net.h"
#include "tools/library_engines.h"

namespace tensorferry::tools {

struct OwnWorkerOptions {
  std::vector<std::string> transports = {};  // beside grpc
  AllowList allow = AllowList::Loopback();
  uint64_t landing_bytes = uint64_t{4} << 20;
  EngineFlags flags = {};
};

class OwnWorker {
 public:
  // The puller's errors and the engines'; kAddressInUse when no port can be had.
  static absl::StatusOr<std::unique_ptr<OwnWorker>> Start(const OwnWorkerOptions& options);
  ~OwnWorker();

  std::string address() const;

 private:
  struct Parts;
  explicit OwnWorker(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_DOCTOR_OWN_WORKER_H_
