// engine/tcp, gateway side: answers read requests over plain sockets, straight from the arena.
//
//   auto engine = TcpExportEngine::Create({.listen = *SocketAddress::Parse("10.0.0.5:0")});
//   (*engine)->Start(arena, &leases);
//
// One thread owns all sockets: non-blocking, it spins briefly after activity and then sleeps in
// epoll. Large answers are sent in turns, so that small ones are not starved. A reader that stops
// reading is cut off at its pull's own deadline, or after `stall_timeout`. Listens on the given
// address only.
#ifndef TENSORFERRY_ENGINE_TCP_TCP_EXPORT_ENGINE_H_
#define TENSORFERRY_ENGINE_TCP_TCP_EXPORT_ENGINE_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/log.h"
#include "tensorferry/base/net.h"
#include "tensorferry/engine/export_engine.h"
#include "tensorferry/metrics/metrics.h"

namespace tensorferry::engine {

struct TcpExportOptions {
  SocketAddress listen = {};  // port 0 picks one
  // What descriptors carry; empty: the bound address. Port 0 stands for the bound port.
  std::vector<SocketAddress> advertise = {};
  uint32_t max_connections = 1024;  // further ones are answered kBusy
  Duration stall_timeout = std::chrono::seconds(10);
  LogSink log = {};
  std::shared_ptr<Metrics> metrics = {};  // counts handshakes; null: nobody does
};

class TcpExportEngine : public ExportEngine {
 public:
  // Binds and listens. kAddressInUse, kBadAddress (wildcard without `advertise`), kNoMemory.
  static absl::StatusOr<std::unique_ptr<TcpExportEngine>> Create(const TcpExportOptions& options);
  // The bound address.
  virtual SocketAddress address() const = 0;
};

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_TCP_TCP_EXPORT_ENGINE_H_
