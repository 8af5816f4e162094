// One gateway's memory as this worker sees it: the arena, the lease table and the worker's own
// claim board (table.h), and the socket that they came over.
//
//   auto gateway = MappedGateway::Map(path, std::move(socket), welcome, std::move(fds));
//   absl::StatusOr<Claim> claim = (*gateway)->Take(descriptor, 0, n, MappedGateway::Use::kView);
//   Use(claim->bytes());                              // cannot be reused while `claim` lives
//
// Any number of claims on one lease share one word of the board. Views count against the share of
// the arena that the gateway permits, by the size of their leases; copies, which are short, do not.
// The table is checked against the arena's size: a gateway that lies gets an error, not a crash.
// After the gateway's death the memory stays as it was, for as long as a claim lives. In a forked
// child, which has none of the mappings, claims are refused and nothing is released.
// Thread-safety: all calls from any thread.
// Ownership: shared by the engine and every Claim.
#ifndef TENSORFERRY_ENGINE_LOCAL_MAPPED_GATEWAY_H_
#define TENSORFERRY_ENGINE_LOCAL_MAPPED_GATEWAY_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/engine/local/shared_memory.h"
#include "tensorferry/engine/local/table.h"
#include "tensorferry/wire/descriptor.h"
#include "tensorferry/wire/local_messages.h"

namespace tensorferry::engine {

class Claim;

class MappedGateway : public std::enable_shared_from_this<MappedGateway> {
 public:
  enum class Use { kView, kCopy };

  // What came with the welcome. kProtocol, kNoMemory.
  static absl::StatusOr<std::shared_ptr<MappedGateway>> Map(std::string path, UniqueFd socket,
                                                            const wire::LocalWelcome& welcome,
                                                            std::vector<UniqueFd> fds);
  ~MappedGateway();

  const std::string& path() const { return path_; }
  const wire::InstanceId& instance() const { return instance_; }

  // kLeaseEnded, kBadToken, kOutOfRange, kClaimLimit, kProtocol, kLaneOff (in a forked child).
  absl::StatusOr<Claim> Take(const wire::Descriptor& descriptor, uint64_t offset, uint64_t length,
                             Use use);
  // Tells the gateway that a reader has all its bytes. Never blocks: what does not fit into the
  // socket is sent when Flush is called.
  void TellDone(const wire::LeaseRef& lease);

  // Has `epoll` report `key` when the gateway is gone or Flush has work that can be done.
  // kNoMemory.
  absl::Status Watch(int epoll, uint64_t key);
  void Unwatch();
  void Flush();

 private:
  friend class Claim;
  // What this process holds of one lease.
  struct Held {
    uint64_t generation = 0;
    uint64_t nbytes = 0;
    uint32_t views = 0;
    uint32_t copies = 0;
  };

  MappedGateway(std::string path, UniqueFd socket, const wire::LocalWelcome& welcome,
                SharedMemory arena, SharedMemory table, SharedMemory board);
  bool InForkedChild() const;
  const TableEntry& EntryOf(uint64_t id) const;
  ClaimWord& WordOf(uint64_t id) const;
  // Whether the entry is the descriptor's lease, and where its bytes are.
  absl::StatusOr<std::span<const std::byte>> Check(const wire::Descriptor& descriptor) const;
  absl::Status CheckShare(uint64_t nbytes) const;
  void Release(const wire::LeaseRef& lease, Use use, bool done);
  void SendAll();

  const std::string path_;
  const UniqueFd socket_;
  const wire::InstanceId instance_;
  const uint64_t entries_;
  const uint64_t max_view_bytes_;
  const SharedMemory arena_;
  const SharedMemory table_;
  const SharedMemory board_;
  const pid_t owner_;

  std::mutex mutex_;
  absl::flat_hash_map<uint64_t, Held> held_;  // by lease id
  uint64_t view_bytes_ = 0;

  std::mutex send_mutex_;
  std::deque<wire::LeaseRef> unsent_;
  bool waiting_for_room_ = false;
  int epoll_ = -1;  // borrowed
  uint64_t key_ = 0;
};

// Keeps one lease's bytes from being reused. Movable; destroy it on any thread.
class Claim {
 public:
  Claim(Claim&& other) noexcept = default;
  Claim& operator=(Claim&&) = delete;
  ~Claim() {
    if (gateway_) gateway_->Release(lease_, use_, done_);
  }

  std::span<const std::byte> bytes() const { return bytes_; }
  // When it is released, the gateway hears that a reader is done.
  void SetDone() { done_ = true; }

 private:
  friend class MappedGateway;
  Claim(std::shared_ptr<MappedGateway> gateway, const wire::LeaseRef& lease, MappedGateway::Use use,
        std::span<const std::byte> bytes)
      : gateway_(std::move(gateway)), lease_(lease), use_(use), bytes_(bytes) {}

  std::shared_ptr<MappedGateway> gateway_;  // null after a move
  wire::LeaseRef lease_;
  MappedGateway::Use use_;
  bool done_ = false;
  std::span<const std::byte> bytes_;
};

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_LOCAL_MAPPED_GATEWAY_H_
