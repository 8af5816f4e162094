// One NIXL agent with its UCX backend: registered memory, peers, READs and notifications, as values
// that clean up.
//
//   auto agent = NixlAgent::Create(library, {.name = "tensorferry-host-4711"});
//   agent->Register(landing, owner);
//   auto peer = agent->Load(blob);                   // shared: the last user forgets the peer
//   auto read = agent->Read(*peer, into, address, /*notification=*/"42");
//   while (read->Poll() == NixlRead::State::kPending) ...
//
// A READ that was posted cannot be stopped: releasing its request leaves NIXL writing to its
// memory. So a NixlRead that is not over must be kept, with its memory, until Poll says otherwise;
// destroying one earlier is a programming error. An agent does not survive a fork: in a child every
// call fails (kLaneOff).
// Thread-safety: the agent from any thread (NIXL's strict locking); a NixlRead by one thread at a
// time.
// Ownership: reads and peers keep their agent.
#ifndef TENSORFERRY_ENGINE_NIXL_NIXL_AGENT_H_
#define TENSORFERRY_ENGINE_NIXL_NIXL_AGENT_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/engine/nixl/nixl_library.h"

namespace tensorferry::engine {

struct NixlAgentOptions {
  std::string name = {};
  // One of NIXL's that serves READs while nobody calls. A side that only READs is quicker without:
  // it would hold UCX's lock, asleep behind another program, when the bytes have come.
  bool progress_thread = true;
  // 0 makes that thread spin.
  uint64_t progress_delay_us = 1000;
  // NIXL's own exchange of metadata needs its listener, also on the side that only fetches.
  bool listen = false;
};

class NixlAgent;

// A remote agent whose metadata is loaded.
class NixlPeer {
 public:
  NixlPeer(std::shared_ptr<NixlAgent> agent, std::string name)
      : agent_(std::move(agent)), name_(std::move(name)) {}
  ~NixlPeer();
  NixlPeer(const NixlPeer&) = delete;
  NixlPeer& operator=(const NixlPeer&) = delete;
  const std::string& name() const { return name_; }

 private:
  std::shared_ptr<NixlAgent> agent_;
  std::string name_;
};

// A posted READ.
class NixlRead {
 public:
  enum class State { kPending, kDone, kFailed };
  ~NixlRead();
  NixlRead(const NixlRead&) = delete;
  NixlRead& operator=(const NixlRead&) = delete;

  State Poll();
  // Leaks the request, which will never be looked at again: only before the agent itself is
  // destroyed.
  void Abandon() { request_ = nullptr; }
  // Of kFailed.
  NixlStatus failure() const { return status_; }

 private:
  friend class NixlAgent;
  NixlRead(std::shared_ptr<NixlAgent> agent, std::shared_ptr<NixlPeer> peer)
      : agent_(std::move(agent)), peer_(std::move(peer)) {}
  std::shared_ptr<NixlAgent> agent_;
  std::shared_ptr<NixlPeer> peer_;
  NixlRequestPtr request_ = nullptr;
  NixlStatus status_ = kNixlInProgress;
};

class NixlAgent : public std::enable_shared_from_this<NixlAgent> {
 public:
  // kLaneOff when there is no UCX plugin or NIXL refuses.
  static absl::StatusOr<std::shared_ptr<NixlAgent>> Create(
      std::shared_ptr<const NixlLibrary> library, const NixlAgentOptions& options);
  ~NixlAgent();
  NixlAgent(const NixlAgent&) = delete;
  NixlAgent& operator=(const NixlAgent&) = delete;

  const std::string& name() const { return options_.name; }
  // kLaneOff in a forked child.
  absl::Status CheckProcess() const;

  // Host memory that READs may fill or be served from. `owner` keeps it mapped until the agent has
  // let go of it.
  absl::Status Register(std::span<const std::byte> memory, std::shared_ptr<const void> owner);
  // This agent's metadata: what a peer must Load before it can READ.
  absl::StatusOr<std::string> LocalMetadata();
  absl::StatusOr<std::shared_ptr<NixlPeer>> Load(std::string_view metadata);
  // NIXL's own exchange: asks for the metadata of the agent `name` behind ip:port, which arrives
  // some time later, when Loaded says so.
  absl::Status Fetch(const std::string& name, const std::string& ip, uint16_t port);
  // Whether the peer has registered all of this range.
  bool Covers(const NixlPeer& peer, uint64_t address, uint64_t length) {
    return Covers(peer.name(), address, length);
  }
  // The peer, once its metadata covers this range.
  std::shared_ptr<NixlPeer> Loaded(const std::string& name, uint64_t address, uint64_t length);

  // Starts to fill `into` from `address` of the peer. With a notification, the peer hears it when
  // the READ has ended. kLaneOff after a fork, kProtocol when NIXL refuses.
  absl::StatusOr<std::unique_ptr<NixlRead>> Read(const std::shared_ptr<NixlPeer>& peer,
                                                 std::span<std::byte> into, uint64_t address,
                                                 std::string_view notification);
  // For an agent without a progress thread, now and then: NixlRead::Poll does it for what is read,
  // and nobody for connections that end.
  void Progress();
  // A notification that belongs to no READ.
  absl::Status Notify(const NixlPeer& peer, std::string_view notification);
  // Takes the notifications that have arrived, one call each, whatever their bytes are.
  absl::Status TakeNotifications(const std::function<void(std::string_view)>& on_notification);

 private:
  friend class NixlPeer;
  friend class NixlRead;
  struct Registration {
    std::span<const std::byte> memory;
    std::shared_ptr<const void> owner;
  };

  NixlAgent(std::shared_ptr<const NixlLibrary> library, NixlAgentOptions options);
  absl::Status Start();
  bool Covers(const std::string& name, uint64_t address, uint64_t length);
  bool forked() const;
  const NixlApi& api() const { return library_->api(); }

  const std::shared_ptr<const NixlLibrary> library_;
  const NixlAgentOptions options_;
  const pid_t process_;
  NixlAgentPtr agent_ = nullptr;
  NixlBackendPtr backend_ = nullptr;
  NixlOptArgsPtr by_ucx_ = nullptr;  // names the backend
  std::mutex mu_;
  std::vector<Registration> registered_;
};

// An agent that serves READs of some memory, and what its readers must load.
struct NixlServer {
  std::shared_ptr<NixlAgent> agent;
  std::string metadata;
};

// Opens the library, creates the agent, and registers `memory`, which outlives it. kLaneOff.
absl::StatusOr<NixlServer> ServeByNixl(const NixlLibraryOptions& library,
                                       const NixlAgentOptions& options,
                                       std::span<const std::byte> memory);

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_NIXL_NIXL_AGENT_H_
