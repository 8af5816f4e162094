// engine/nixl, gateway side: lets SMG workers, stock or ours, fetch leases by one-sided READs.
//
//   auto engine = NixlExportEngine::Create(
//       {.listen = *SocketAddress::Parse("10.0.0.5:18515"),
//        .agent_program = "/usr/libexec/tensorferry/tensorferry-nixl-agent"});
//   if (engine.ok()) exporter_options.engines.push_back(*std::move(engine));
//   ...
//   message->set_descriptor(*lease.SmgDescriptor());           // handle transport "nixl"
//
// The agent lives in a process of its own (nixl_agent_process.h), or here when `in_process` is set,
// as verbs wants: it registers writable memory only. Readers ask our listener for the agent's
// metadata, READ the arena without this process taking part, and end a lease by a notification that
// names its key. After an agent had to be started anew the addresses of leases stay valid; our own
// pullers ask for the new metadata within the same pull, stock ones never do: see epoch().
#ifndef TENSORFERRY_ENGINE_NIXL_NIXL_EXPORT_ENGINE_H_
#define TENSORFERRY_ENGINE_NIXL_NIXL_EXPORT_ENGINE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/export.h"
#include "tensorferry/base/log.h"
#include "tensorferry/base/net.h"
#include "tensorferry/engine/export_engine.h"
#include "tensorferry/engine/nixl/nixl_library.h"
#include "tensorferry/metrics/metrics.h"

namespace tensorferry::engine {

struct NixlExportOptions {
  NixlLibraryOptions library = {};
  // Where readers ask for the agent's metadata; port 0 picks one.
  SocketAddress listen = {};
  // What descriptors carry; none: the bound address. Port 0 stands for the bound port. Stock
  // workers take IPv4 only.
  std::optional<SocketAddress> advertise = {};
  // Stock workers look the agent up under this name.
  std::string agent_name = "smg-gateway-encode";
  uint64_t progress_delay_us = 1000;
  std::string agent_program = {};
  bool in_process = false;
  // Between attempts to start an agent that has died.
  Duration restart_min = std::chrono::milliseconds(100);
  Duration restart_max = std::chrono::seconds(5);
  LogSink log = {};
  std::shared_ptr<Metrics> metrics = {};  // null: nobody counts
};

struct NixlExportStats {
  uint64_t notifications = 0;       // all
  uint64_t bad_notifications = 0;   // that are no key
  uint64_t late_notifications = 0;  // whose key belongs to no readable lease
  uint64_t handshakes = 0;
};

class TENSORFERRY_EXPORT NixlExportEngine : public ExportEngine {
 public:
  // Binds and listens. kAddressInUse, kBadAddress (a wildcard without `advertise`).
  static absl::StatusOr<std::unique_ptr<NixlExportEngine>> Create(const NixlExportOptions& options);
  // The bound address.
  virtual SocketAddress address() const = 0;
  virtual NixlExportStats stats() const = 0;
};

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_NIXL_NIXL_EXPORT_ENGINE_H_
