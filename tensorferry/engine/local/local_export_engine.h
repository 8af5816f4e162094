// engine/local, gateway side: lets workers of the same host and user map the arena.
//
//   auto engine = LocalExportEngine::Create({.socket_path = "/run/gateway/tensorferry.sock"});
//   (*engine)->Start(arena, &leases);
//
// A worker connects to the unix socket; when its uid (SO_PEERCRED) is ours it gets the arena and the lease
// table, both read-only for it, and a claim board of its own. From then on reading a lease needs no message (see
// table.h). A worker's death is seen by pidfd and by its socket (a forked child may keep the socket open), and
// drops its claims. A stale socket file, whose listener is gone, is replaced; a live one is kAddressInUse.
#ifndef TENSORFERRY_ENGINE_LOCAL_LOCAL_EXPORT_ENGINE_H_
#define TENSORFERRY_ENGINE_LOCAL_LOCAL_EXPORT_ENGINE_H_

#include <memory>
#include <optional>
#include <string>

#include <sys/types.h>

#include "absl/status/statusor.h"
#include "tensorferry/base/log.h"
#include "tensorferry/engine/export_engine.h"

namespace tensorferry::engine {

struct LocalExportOptions {
  std::string socket_path;  // absolute, at most 107 bytes
  uint32_t max_claim_percent = 25;
  std::optional<uid_t> expected_uid;  // for tests; default: this process's effective uid
  LogSink log;
};

class LocalExportEngine : public ExportEngine {
 public:
  static absl::StatusOr<std::unique_ptr<LocalExportEngine>> Create(const LocalExportOptions& options);
};

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_LOCAL_LOCAL_EXPORT_ENGINE_H_
