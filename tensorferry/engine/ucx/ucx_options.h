// What both ends of engine/ucx are told. Its code is in a module of its own, opened at run time
// (ucx_module.h), so that nothing here needs UCX.
//
//   UcxPullOptions options;
//   options.ucx.trusted_network = true;          // or RDMA transports alone
//   options.ucx.devices = {"eth1"};
//
// Over its transport tcp UCX writes to any address of the process that whoever reaches its ports
// names. So without `trusted_network` tcp stays on the loopback interface.
// Thread-safety: values.
#ifndef TENSORFERRY_ENGINE_UCX_UCX_OPTIONS_H_
#define TENSORFERRY_ENGINE_UCX_UCX_OPTIONS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tensorferry/base/clock.h"
#include "tensorferry/base/log.h"
#include "tensorferry/base/net.h"
#include "tensorferry/engine/export_engine.h"
#include "tensorferry/metrics/metrics.h"

namespace tensorferry::engine {

// One-sided pulls, by UCX's GET. The gateway registers its arena with UCX, and whoever may read one
// lease can read all of it.
enum class UcxGet : uint8_t {
  kOff,
  kOn,  // over transports of RDMA alone
  // Over any, for measuring: where the card does not read by itself, UCX does so by the gateway's
  // processor, and UCX 1.13 ends the gateway when a reader goes away in the middle of a GET.
  kEvenEmulated,
};

struct UcxOptions {
  // RDMA devices of this host with an active port ("mlx5_0:1"), best first: see
  // engine/remote_choice.h.
  std::vector<std::string> rdma_devices = {};
  // UCX's names, comma-separated ("rc,ud", "tcp"). Empty: those of InfiniBand and RoCE where there
  // are RDMA devices, else tcp.
  std::string transports = {};
  // Network devices as UCX names them ("mlx5_0:1", "eth1"). Empty: the RDMA devices; for tcp the one
  // of the address that is listened on, or any; `lo` on networks that are not trusted.
  std::vector<std::string> devices = {};
  // Ports of UCX's own sockets over tcp, "30000-30100". Empty: the system picks.
  std::string port_range = {};
  // Only hosts that may read and write this process's memory reach UCX's ports.
  bool trusted_network = false;
  // A worker fetches by itself from a gateway that lets it, and else asks as ever.
  UcxGet get = UcxGet::kOff;
  // Up to so many bytes are sent at once and copied; beyond, UCX's rendezvous puts them in place.
  uint64_t eager_bytes = uint64_t{64} << 10;
  LogSink log = {};
  std::shared_ptr<Metrics> metrics = {};
};

// The transports that UCX is told.
inline std::string UcxTransports(const UcxOptions& options) {
  if (!options.transports.empty()) return options.transports;
  return options.rdma_devices.empty() ? "tcp" : "ib";
}

struct UcxExportOptions {
  UcxOptions ucx = {};
  SocketAddress listen = {};  // port 0 picks one
  // What descriptors carry; empty: the bound address. Port 0 stands for the bound port.
  std::vector<SocketAddress> advertise = {};
  uint32_t max_readers = 1024;  // endpoints; further ones are turned away (kBusy)
  // A reader whose pull has no deadline of its own has so long for one answer.
  Duration answer_timeout = std::chrono::seconds(60);
};

class UcxExportEngine : public ExportEngine {
 public:
  // The bound address.
  virtual SocketAddress address() const = 0;
  // What UCX says of the ways to this engine's readers, as `ucx_info -e` prints it, for people. Only
  // after Start; waits for the engine's thread.
  virtual std::string DescribeReaders() = 0;
};

struct UcxPullOptions {
  UcxOptions ucx = {};
  AllowList allow = AllowList::Loopback();
  Duration connect_timeout = std::chrono::seconds(2);
  Duration backoff_min = std::chrono::milliseconds(100);
  Duration backoff_max = std::chrono::seconds(5);
};

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_UCX_UCX_OPTIONS_H_
