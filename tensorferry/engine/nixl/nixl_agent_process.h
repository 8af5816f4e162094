// The gateway's NIXL agent in a process of its own, and the little they say to each other.
//
// Over tcp UCX lets a reader that dies in mid-READ abort the process that it read from, and exit
// handlers of its verbs module may crash. So the agent lives in `tensorferry-nixl-agent`: it maps
// the arena's memfd read-only, at the gateway's own address, registers it, and reports
// notifications. When it dies the gateway lives, and starts another.
//
//   auto agent = NixlAgentProcess::Start({.program = ".../tensorferry-nixl-agent", .memfd = fd});
//   reply(agent->metadata());
//   poll(agent->fd());
//   agent->TakeNotifications(f);           // kPeerClosed: it has died
//
// They share a socket pair of packets, the child's descriptor 3; the arena is its descriptor 4. It
// ends when the socket does, so with the gateway, whatever ends that.
// Thread-safety: one thread at a time.
#ifndef TENSORFERRY_ENGINE_NIXL_NIXL_AGENT_PROCESS_H_
#define TENSORFERRY_ENGINE_NIXL_NIXL_AGENT_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/export.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/engine/nixl/nixl_library.h"

namespace tensorferry::engine {

// What the child is told first.
struct NixlAgentOrder {
  NixlLibraryOptions library = {};
  std::string agent_name = {};
  uint64_t progress_delay_us = 1000;
  uint64_t arena_address = 0;
  uint64_t arena_bytes = 0;
};

struct NixlAgentProcessOptions {
  std::string program = {};
  NixlAgentOrder order = {};
  int memfd = -1;  // borrowed during Start
  Duration start_timeout = std::chrono::seconds(10);
  Duration stop_timeout = std::chrono::seconds(2);
};

class NixlAgentProcess {
 public:
  // Waits until the agent serves. kLaneOff with the child's own words, or that there is no such
  // program.
  static absl::StatusOr<std::unique_ptr<NixlAgentProcess>> Start(
      const NixlAgentProcessOptions& options);
  ~NixlAgentProcess();  // ends it
  NixlAgentProcess(const NixlAgentProcess&) = delete;
  NixlAgentProcess& operator=(const NixlAgentProcess&) = delete;

  const std::string& metadata() const { return metadata_; }
  // Where the child has the arena: what descriptors must say.
  uint64_t arena_address() const { return arena_address_; }
  pid_t pid() const { return pid_; }
  int fd() const { return socket_.get(); }
  // While readers may read, it looks for notifications often. Never blocks: false when it could not
  // be told.
  bool SetBusy(bool busy);
  // Never blocks.
  absl::Status TakeNotifications(const std::function<void(std::string_view)>& on_notification);

 private:
  NixlAgentProcess() = default;
  absl::Status Spawn(const NixlAgentProcessOptions& options);
  absl::Status AwaitReady(Duration timeout);
  std::string HowItEnded();

  UniqueFd socket_;
  UniqueFd pidfd_;
  pid_t pid_ = -1;
  Duration stop_timeout_ = {};
  std::string metadata_;
  uint64_t arena_address_ = 0;
};

// The child's descriptors.
inline constexpr int kNixlAgentSocket = 3;
inline constexpr int kNixlAgentMemfd = 4;

// The child's whole life; returns its exit status, with which it must leave by _exit: UCX's exit
// handlers may crash.
TENSORFERRY_EXPORT int RunNixlAgent();

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_NIXL_NIXL_AGENT_PROCESS_H_
