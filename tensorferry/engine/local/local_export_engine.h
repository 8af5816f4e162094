// engine/local, gateway side: lets workers of the same host and user map the arena.
//
//   auto engine = LocalExportEngine::Create({.socket_path = "/run/gateway/tensorferry.sock"});
//   (*engine)->Start(arena, &leases);
//
// A worker connects to the unix socket; when its uid (SO_PEERCRED) is ours it gets the arena and
// the lease table, both read-only for it, and a claim board of its own. From then on reading a
// lease needs no message (see table.h). Its claims last until its process dies (pidfd: a forked
// child may keep the socket open) or closes its socket, which it does only once nothing of it is
// left; a stopped worker keeps them. The socket's file has mode 0600 from its first moment on. A
// stale file, whose listener is gone, is replaced; a live one is kAddressInUse.
//
// One thread owns all sockets and sleeps in epoll; while a retired lease is still claimed it also
// looks at the boards by itself, every few milliseconds at first and then ever more rarely.
// Thread-safety: see ExportEngine. Quiesced may be called before Retire has returned its false.
#ifndef TENSORFERRY_ENGINE_LOCAL_LOCAL_EXPORT_ENGINE_H_
#define TENSORFERRY_ENGINE_LOCAL_LOCAL_EXPORT_ENGINE_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tensorferry/base/log.h"
#include "tensorferry/engine/export_engine.h"
#include "tensorferry/metrics/metrics.h"

namespace tensorferry::engine {

struct LocalExportOptions {
  std::string socket_path = {};  // absolute, at most 107 bytes
  // Share of the arena that one worker may hold as views.
  uint32_t max_claim_percent = 25;
  uint32_t max_workers = 256;              // further ones are refused with kBusy
  std::optional<uid_t> expected_uid = {};  // for tests; default: this process's effective uid
  LogSink log = {};
  std::shared_ptr<Metrics> metrics = {};  // counts handshakes; null: nobody does
};

class LocalExportEngine : public ExportEngine {
 public:
  // Binds and listens. kBadAddress, kAddressInUse, kBadOption.
  static absl::StatusOr<std::unique_ptr<LocalExportEngine>> Create(
      const LocalExportOptions& options);
  // Connected now.
  virtual size_t workers() const = 0;
};

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_LOCAL_LOCAL_EXPORT_ENGINE_H_
