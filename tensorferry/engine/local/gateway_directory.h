// All gateways of this host that a worker has mapped, and the connecting to further ones.
//
//   GatewayDirectory directory({.connect_timeout = std::chrono::seconds(1)});
//   std::shared_ptr<MappedGateway> gateway = directory.Find(path, instance);
//   if (!gateway) {
//     std::shared_ptr<Attempt> attempt = directory.Join(path, now);
//     while (!directory.Drive(*attempt, now)) poll(directory.AddWaits(*attempt));
//   }
//
// Connecting is single-flight: all who want a gateway share one attempt, and whoever of them runs
// next drives it; nothing blocks. A gateway that refuses, talks nonsense or does not answer is
// remembered for a while, so that pulls go another way at once; one that is not there is not,
// because it may be just restarting. A thread sleeps on the sockets of the mapped gateways: a dead
// one is forgotten at once, so that its memory goes with the last view of it.
// Thread-safety: all calls from any thread.
// Ownership: the thread is joined by the destructor; mapped gateways live on with their claims.
#ifndef TENSORFERRY_ENGINE_LOCAL_GATEWAY_DIRECTORY_H_
#define TENSORFERRY_ENGINE_LOCAL_GATEWAY_DIRECTORY_H_

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/base/log.h"
#include "tensorferry/engine/local/mapped_gateway.h"
#include "tensorferry/metrics/metrics.h"
#include "tensorferry/wire/descriptor.h"

namespace tensorferry::engine {

class GatewayDirectory {
 public:
  // One connecting to one path.
  class Attempt;
  using Outcome = absl::StatusOr<std::shared_ptr<MappedGateway>>;

  // A gateway that has not welcomed us after `connect_timeout` is kUnreachable, and stays so for as
  // long again.
  GatewayDirectory(Duration connect_timeout, LogSink log, std::shared_ptr<Metrics> metrics = {});
  ~GatewayDirectory();
  GatewayDirectory(const GatewayDirectory&) = delete;
  GatewayDirectory& operator=(const GatewayDirectory&) = delete;

  // Null when it is not mapped.
  std::shared_ptr<MappedGateway> Find(const std::string& path,
                                      const wire::InstanceId& instance) const;
  // OK, or why connecting now would be in vain.
  absl::Status KnownFailure(const std::string& path, const wire::InstanceId& instance,
                            Instant now) const;
  // Another gateway than `instance` answers at `path`. An instance never comes back.
  void RememberWrongInstance(const std::string& path, const wire::InstanceId& instance,
                             const absl::Status& status, Instant now);

  struct Joined {
    std::shared_ptr<Attempt> attempt;
    bool begun_by_us = false;
  };
  Joined Join(const std::string& path, Instant now);
  // One non-blocking step. Empty as long as it is not over; then the same outcome for everybody.
  // The gateway may be of another instance than the caller wants.
  std::optional<Outcome> Drive(Attempt& attempt, Instant now);
  void AddWaits(const Attempt& attempt, std::vector<pollfd>* waits, Instant* wake) const;

 private:
  struct Failure {
    std::string path;
    std::optional<wire::InstanceId> instance;  // none: of the path as such
    absl::Status status;
    Instant until;
  };
  struct Mapped {
    uint64_t key = 0;  // of the epoll set
    std::shared_ptr<MappedGateway> gateway;
  };

  std::shared_ptr<MappedGateway> FindLocked(const std::string& path,
                                            const wire::InstanceId& instance) const;
  void Remember(Failure failure, Instant now);
  absl::Status Connect(Attempt& attempt, Instant now);
  std::optional<Outcome> Receive(Attempt& attempt);
  absl::Status Adopt(const std::shared_ptr<MappedGateway>& gateway);
  absl::Status StartThread();
  void Finish(Attempt& attempt, Outcome outcome, Instant now);
  void Run();

  const pid_t owner_;
  const Duration connect_timeout_;
  const LogSink log_;
  const std::shared_ptr<Metrics> metrics_;

  mutable std::mutex mutex_;
  std::vector<Mapped> mapped_;  // few: one per gateway on this host
  std::vector<Failure> failures_;
  absl::flat_hash_map<std::string, std::shared_ptr<Attempt>> attempts_;  // by path
  uint64_t next_key_ = 1;
  UniqueFd epoll_;
  UniqueFd stop_;
  std::thread thread_;
};

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_LOCAL_GATEWAY_DIRECTORY_H_
