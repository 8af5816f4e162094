// Memory for tensors that arrive over a network, handed out first come, first served.
//
//   auto pool = LandingPool::Create({.bytes = 1 << 30});
//   std::unique_ptr<LandingPool::Ticket> ticket = (*pool)->Request(nbytes);
//   while (!ticket->granted()) poll(ticket->fd(), ...);
//   std::shared_ptr<LandingBlock> block = ticket->Take();       // dropped = given back
//
// A request that does not fit waits, and everybody behind it waits too, so that a large tensor is
// not passed by small ones for ever. Destroying a ticket leaves the queue. Blocks are 64-byte
// aligned and keep the pool alive.
// Thread-safety: all of it from any thread; one ticket by one thread at a time.
#ifndef TENSORFERRY_PULLER_LANDING_POOL_H_
#define TENSORFERRY_PULLER_LANDING_POOL_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "tensorferry/arena/allocator.h"
#include "tensorferry/arena/mapping.h"
#include "tensorferry/base/fd.h"

namespace tensorferry {

class LandingPool;

class LandingBlock {
 public:
  LandingBlock(std::shared_ptr<LandingPool> pool, uint64_t offset, std::span<std::byte> bytes)
      : pool_(std::move(pool)), offset_(offset), bytes_(bytes) {}
  ~LandingBlock();
  LandingBlock(const LandingBlock&) = delete;
  LandingBlock& operator=(const LandingBlock&) = delete;
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::shared_ptr<LandingPool> pool_;
  uint64_t offset_;
  std::span<std::byte> bytes_;
};

class LandingPool : public std::enable_shared_from_this<LandingPool> {
 public:
  // `bytes` may be 0: every request for more than nothing is then too large.
  static absl::StatusOr<std::shared_ptr<LandingPool>> Create(const arena::MappingOptions& options);

  class Ticket {
   public:
    ~Ticket();
    bool granted() const;
    // Readable once granted; -1 when it was granted at once.
    int fd() const { return event_.get(); }
    // After granted(), once.
    std::shared_ptr<LandingBlock> Take();

   private:
    friend class LandingPool;
    std::shared_ptr<LandingPool> pool_;
    uint64_t nbytes_ = 0;
    UniqueFd event_;
    std::optional<uint64_t> offset_;                     // under the pool's lock until granted
    std::optional<std::list<Ticket*>::iterator> place_;  // in the queue
  };

  // kTooLarge when `nbytes` exceeds the whole pool; kNoMemory when no descriptor can be had to wait
  // on.
  absl::StatusOr<std::unique_ptr<Ticket>> Request(uint64_t nbytes);

  // All of it, for engines that must register what they write to.
  std::span<std::byte> memory() const {
    return mapping_ ? std::span(mapping_->data(), mapping_->size()) : std::span<std::byte>();
  }
  uint64_t capacity() const { return mapping_ ? mapping_->size() : 0; }
  uint64_t used_bytes() const;
  uint64_t waiting() const;

 private:
  friend class LandingBlock;
  explicit LandingPool(std::unique_ptr<arena::Mapping> mapping);
  void Free(uint64_t offset);
  void GrantLocked();
  std::shared_ptr<LandingBlock> BlockAt(uint64_t offset, uint64_t nbytes);

  const std::unique_ptr<arena::Mapping> mapping_;
  mutable std::mutex mu_;
  arena::Allocator allocator_;
  std::list<Ticket*> queue_;
};

}  // namespace tensorferry

#endif  // TENSORFERRY_PULLER_LANDING_POOL_H_
