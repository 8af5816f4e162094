#include "tensorferry/puller/landing_pool.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <utility>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry {

LandingBlock::~LandingBlock() { pool_->Free(offset_); }

absl::StatusOr<std::shared_ptr<LandingPool>> LandingPool::Create(
    const arena::MappingOptions& options) {
  std::unique_ptr<arena::Mapping> mapping;
  if (options.bytes > 0) {
    absl::StatusOr<std::unique_ptr<arena::Mapping>> created = arena::Mapping::Create(options);
    if (!created.ok()) return Annotate(created.status(), "landing memory");
    mapping = *std::move(created);
  }
  return std::shared_ptr<LandingPool>(new LandingPool(std::move(mapping)));
}

LandingPool::LandingPool(std::unique_ptr<arena::Mapping> mapping)
    : mapping_(std::move(mapping)), allocator_(mapping_ ? mapping_->size() : 0) {}

absl::StatusOr<std::unique_ptr<LandingPool::Ticket>> LandingPool::Request(uint64_t nbytes) {
  if (nbytes > capacity()) {
    return MakeError(Reason::kTooLarge,
                     StrCat("a tensor of ", nbytes, " bytes can never fit ", capacity(),
                            " bytes of landing memory; raise landing_bytes"));
  }
  auto ticket = std::make_unique<Ticket>();
  ticket->nbytes_ = nbytes;
  const std::lock_guard<std::mutex> lock(mu_);
  ticket->pool_ = shared_from_this();
  if (queue_.empty()) {
    ticket->offset_ = allocator_.Allocate(nbytes);
    if (ticket->offset_) return ticket;
  }
  ticket->event_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!ticket->event_) return SystemError(errno, "eventfd to wait for landing memory");
  ticket->place_ = queue_.insert(queue_.end(), ticket.get());
  return ticket;
}

LandingPool::Ticket::~Ticket() {
  if (!pool_) return;
  const std::lock_guard<std::mutex> lock(pool_->mu_);
  if (place_) pool_->queue_.erase(*place_);
  if (offset_) pool_->allocator_.Free(*offset_);
  pool_->GrantLocked();
}

bool LandingPool::Ticket::granted() const {
  const std::lock_guard<std::mutex> lock(pool_->mu_);
  return offset_.has_value();
}

std::shared_ptr<LandingBlock> LandingPool::Ticket::Take() {
  uint64_t offset;
  {
    const std::lock_guard<std::mutex> lock(pool_->mu_);
    offset = *std::exchange(offset_, std::nullopt);
  }
  return pool_->BlockAt(offset, nbytes_);
}

std::shared_ptr<LandingBlock> LandingPool::BlockAt(uint64_t offset, uint64_t nbytes) {
  return std::make_shared<LandingBlock>(shared_from_this(), offset,
                                        std::span<std::byte>(mapping_->data() + offset, nbytes));
}

void LandingPool::Free(uint64_t offset) {
  const std::lock_guard<std::mutex> lock(mu_);
  allocator_.Free(offset);
  GrantLocked();
}

void LandingPool::GrantLocked() {
  while (!queue_.empty()) {
    Ticket* next = queue_.front();
    next->offset_ = allocator_.Allocate(next->nbytes_);
    if (!next->offset_) return;
    queue_.pop_front();
    next->place_.reset();
    (void)::eventfd_write(next->event_.get(), 1);
  }
}

uint64_t LandingPool::used_bytes() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return allocator_.used_bytes();
}

uint64_t LandingPool::waiting() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return queue_.size();
}

}  // namespace tensorferry
