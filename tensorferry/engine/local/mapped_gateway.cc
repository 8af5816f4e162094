#include "tensorferry/engine/local/mapped_gateway.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <utility>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/local/unix_socket.h"

namespace tensorferry::engine {

absl::StatusOr<std::shared_ptr<MappedGateway>> MappedGateway::Map(std::string path, UniqueFd socket,
                                                                  const wire::LocalWelcome& welcome,
                                                                  std::vector<UniqueFd> fds) {
  const auto wrong = [&](const absl::Status& status) {
    return Annotate(status, StrCat("gateway at \"", path, "\""));
  };
  if (fds.size() != 3) {
    return wrong(MakeError(Reason::kProtocol,
                           StrCat("its welcome came with ", fds.size(), " descriptors, not 3")));
  }
  if (welcome.table_entries > std::numeric_limits<uint32_t>::max()) {
    return wrong(MakeError(Reason::kProtocol, StrCat("its lease table has ", welcome.table_entries,
                                                     " entries, which do not fit 32 bits")));
  }
  using Access = SharedMemory::Access;
  auto arena = SharedMemory::Map(fds[0].get(), welcome.arena_bytes, Access::kRead, "arena");
  if (!arena.ok()) return wrong(arena.status());
  auto table = SharedMemory::Map(fds[1].get(), welcome.table_entries * sizeof(TableEntry),
                                 Access::kRead, "lease table");
  if (!table.ok()) return wrong(table.status());
  auto board = SharedMemory::Map(fds[2].get(), welcome.table_entries * sizeof(ClaimWord),
                                 Access::kReadWrite, "claim board");
  if (!board.ok()) return wrong(board.status());
  return std::shared_ptr<MappedGateway>(new MappedGateway(std::move(path), std::move(socket),
                                                          welcome, *std::move(arena),
                                                          *std::move(table), *std::move(board)));
}

MappedGateway::MappedGateway(std::string path, UniqueFd socket, const wire::LocalWelcome& welcome,
                             SharedMemory arena, SharedMemory table, SharedMemory board)
    : path_(std::move(path)),
      socket_(std::move(socket)),
      instance_(welcome.instance),
      entries_(welcome.table_entries),
      max_view_bytes_(welcome.max_claim_bytes),
      arena_(std::move(arena)),
      table_(std::move(table)),
      board_(std::move(board)),
      owner_(::getpid()) {}

MappedGateway::~MappedGateway() {
  // Closing alone would go unnoticed as long as a forked child holds the socket too.
  if (!InForkedChild()) ::shutdown(socket_.get(), SHUT_RDWR);
}

bool MappedGateway::InForkedChild() const { return ::getpid() != owner_; }

const TableEntry& MappedGateway::EntryOf(uint64_t id) const {
  return reinterpret_cast<const TableEntry*>(table_.data())[id];
}

ClaimWord& MappedGateway::WordOf(uint64_t id) const {
  return reinterpret_cast<ClaimWord*>(board_.data())[id];
}

absl::StatusOr<Claim> MappedGateway::Take(const wire::Descriptor& descriptor, uint64_t offset,
                                          uint64_t length, Use use) {
  const wire::LeaseRef& lease = descriptor.lease;
  if (InForkedChild()) {
    return MakeError(Reason::kLaneOff,
                     "the gateway was mapped before this process was forked; make a new puller in"
                     " the child");
  }
  if (offset > descriptor.nbytes || length > descriptor.nbytes - offset) {
    return MakeError(Reason::kOutOfRange,
                     StrCat("lease ", lease.id, ": ", length, " bytes at ", offset,
                            " reach beyond its ", descriptor.nbytes, " bytes"));
  }
  const auto ended = [&] {
    return MakeError(Reason::kLeaseEnded,
                     StrCat("lease ", lease.id, " of the gateway at \"", path_, "\" has ended"));
  };
  if (lease.id >= entries_ || lease.generation == 0) return ended();

  std::lock_guard lock(mutex_);
  const auto [it, fresh] = held_.try_emplace(lease.id);
  Held& held = it->second;
  // While one generation is claimed here, no other of the same id can be readable.
  if (!fresh && held.generation != lease.generation) return ended();
  if (fresh) {
    held.generation = lease.generation;
    held.nbytes = descriptor.nbytes;
    WordOf(lease.id).store(lease.generation);
  }
  const bool readable = EntryOf(lease.id).generation.load() == lease.generation;
  absl::StatusOr<std::span<const std::byte>> bytes = readable ? Check(descriptor) : ended();
  if (bytes.ok() && use == Use::kView && held.views == 0) {
    if (absl::Status s = CheckShare(descriptor.nbytes); !s.ok()) bytes = s;
  }
  if (!bytes.ok()) {
    if (fresh) {
      WordOf(lease.id).store(0);
      held_.erase(it);
    }
    return bytes.status();
  }
  if (use == Use::kView && held.views++ == 0) view_bytes_ += held.nbytes;
  if (use == Use::kCopy) ++held.copies;
  return Claim(shared_from_this(), lease, use, bytes->subspan(offset, length));
}

absl::StatusOr<std::span<const std::byte>> MappedGateway::Check(
    const wire::Descriptor& descriptor) const {
  const uint64_t id = descriptor.lease.id;
  const TableEntry& entry = EntryOf(id);
  if (!entry.HasToken(descriptor.lease.token)) {
    return MakeError(Reason::kBadToken,
                     StrCat("lease ", id, ": the token of the descriptor is not the lease's"));
  }
  const uint64_t at = entry.payload_offset.load(std::memory_order_relaxed);
  const uint64_t nbytes = entry.nbytes.load(std::memory_order_relaxed);
  if (descriptor.nbytes > nbytes) {
    return MakeError(Reason::kOutOfRange, StrCat("lease ", id, ": the ", descriptor.nbytes,
                                                 " bytes of the descriptor reach beyond the ",
                                                 nbytes, " of the gateway at \"", path_, "\""));
  }
  if (nbytes > arena_.size() || at > arena_.size() - nbytes) {
    return MakeError(Reason::kProtocol, StrCat("lease ", id, ": ", nbytes, " bytes at ", at,
                                               " lie outside the arena of ", arena_.size(),
                                               " bytes of the gateway at \"", path_, "\""));
  }
  return std::span<const std::byte>(arena_.data() + at, nbytes);
}

absl::Status MappedGateway::CheckShare(uint64_t nbytes) const {
  if (nbytes <= max_view_bytes_ && view_bytes_ <= max_view_bytes_ - nbytes) {
    return absl::OkStatus();
  }
  return MakeError(Reason::kClaimLimit,
                   StrCat("this worker holds views of ", view_bytes_, " bytes of the gateway at \"",
                          path_, "\"; ", nbytes, " more would exceed its share of ",
                          max_view_bytes_, " bytes (the exporter's max_claim_percent)"));
}

void MappedGateway::Release(const wire::LeaseRef& lease, Use use, bool done) {
  if (InForkedChild()) return;  // the claim is the parent's
  bool waited_for = false;
  {
    std::lock_guard lock(mutex_);
    const auto it = held_.find(lease.id);
    Held& held = it->second;
    if (use == Use::kView && --held.views == 0) view_bytes_ -= held.nbytes;
    if (use == Use::kCopy) --held.copies;
    if (held.views == 0 && held.copies == 0) {
      held_.erase(it);
      WordOf(lease.id).store(0);
      waited_for = EntryOf(lease.id).generation.load() != lease.generation;
    }
  }
  if (done || waited_for) TellDone(lease);
}

void MappedGateway::TellDone(const wire::LeaseRef& lease) {
  if (InForkedChild()) return;
  std::lock_guard lock(send_mutex_);
  unsent_.push_back(lease);
  SendAll();
}

void MappedGateway::Flush() {
  std::lock_guard lock(send_mutex_);
  SendAll();
}

void MappedGateway::SendAll() {
  while (!unsent_.empty()) {
    if (SendWithFds(socket_.get(), wire::EncodeLocalRelease({.lease = unsent_.front()}), {})) {
      unsent_.pop_front();
    } else if (errno == EAGAIN) {
      break;
    } else {
      unsent_.clear();  // the gateway is gone, and its leases with it
    }
  }
  const bool wait = !unsent_.empty();
  if (wait == waiting_for_room_ || epoll_ < 0) return;
  epoll_event event = {.events = EPOLLRDHUP | (wait ? uint32_t{EPOLLOUT} : 0u),
                       .data = {.u64 = key_}};
  (void)::epoll_ctl(epoll_, EPOLL_CTL_MOD, socket_.get(), &event);
  waiting_for_room_ = wait;
}

absl::Status MappedGateway::Watch(int epoll, uint64_t key) {
  std::lock_guard lock(send_mutex_);
  epoll_event event = {.events = EPOLLRDHUP, .data = {.u64 = key}};
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, socket_.get(), &event) != 0) {
    return SystemError(errno, "watch the gateway's socket");
  }
  epoll_ = epoll;
  key_ = key;
  return absl::OkStatus();
}

void MappedGateway::Unwatch() {
  if (InForkedChild()) return;  // the epoll set is shared with the parent
  std::lock_guard lock(send_mutex_);
  if (epoll_ < 0) return;
  (void)::epoll_ctl(epoll_, EPOLL_CTL_DEL, socket_.get(), nullptr);
  epoll_ = -1;
}

}  // namespace tensorferry::engine
