#include "tensorferry/engine/engine_testing.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "tensorferry/base/error.h"
#include "tensorferry/base/poll.h"
#include "tensorferry/base/text.h"
#include "tensorferry/wire/frame.h"

namespace tensorferry::engine {
namespace {

// Any step of set-up that fails makes the test meaningless.
void Require(bool condition, const char* what) {
  if (condition) return;
  std::perror(what);
  std::abort();
}

// Around every payload: it stays aligned, and the stamps of its frame fit.
constexpr uint64_t kFrameRoom = 64;

uint64_t Aligned(uint64_t offset) { return (offset + 63) / 64 * 64; }

// Of memory that a one-sided reader may be reading meanwhile, as it may: TSan would say so.
__attribute__((no_sanitize("thread"))) void Overwrite(volatile std::byte* at, uint64_t nbytes,
                                                      std::byte value) {
  for (uint64_t i = 0; i < nbytes; ++i) at[i] = value;
}

// Bytes that tell one lease from another and one place in it from another.
void FillPattern(std::span<std::byte> bytes, uint64_t seed) {
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (size_t i = 0; i < bytes.size(); i += sizeof(state)) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(bytes.data() + i, &state, std::min(sizeof(state), bytes.size() - i));
  }
}

}  // namespace

FakeLeaseSource::FakeLeaseSource(const Options& options)
    : options_(options),
      size_(Aligned(options.arena_bytes) + options.max_leases * 2 * kFrameRoom),
      used_(kFrameRoom) {
  memfd_.Reset(::memfd_create("tensorferry-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  Require(static_cast<bool>(memfd_), "memfd_create");
  const off_t size = static_cast<off_t>(size_);
  Require(::ftruncate(memfd_.get(), size) == 0, "ftruncate");
  void* data = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, memfd_.get(), 0);
  Require(data != MAP_FAILED, "mmap");
  data_ = static_cast<std::byte*>(data);
  Require(
      ::fcntl(memfd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE) == 0,
      "F_ADD_SEALS");
  instance_.fill(0x5a);
  instance_[0] = options_.instance;
}

FakeLeaseSource::~FakeLeaseSource() { ::munmap(data_, size_); }

ArenaView FakeLeaseSource::arena() const {
  return {.data = data_,
          .size = size_,
          .memfd = memfd_.get(),
          .max_leases = options_.max_leases,
          .instance = instance_};
}

PublishedLease FakeLeaseSource::Add(uint64_t nbytes) {
  std::lock_guard lock(mutex_);
  PublishedLease lease;
  lease.ref.id = entries_.size();
  lease.ref.generation = 1000 + entries_.size();
  lease.ref.token.fill(static_cast<uint8_t>(0xa0 + entries_.size()));
  lease.payload_offset = used_;
  lease.nbytes = nbytes;
  if (entries_.size() == options_.max_leases || nbytes > size_ - kFrameRoom - used_) {
    std::fprintf(stderr, "FakeLeaseSource: no room for a lease of %llu bytes; raise its options\n",
                 static_cast<unsigned long long>(nbytes));
    std::abort();
  }
  used_ = Aligned(used_ + nbytes + wire::kFrameStampBytes) + kFrameRoom;
  FillPattern({data_ + lease.payload_offset, nbytes}, lease.ref.generation);
  std::byte* const frame = data_ + lease.payload_offset - wire::kFrameStampBytes;
  wire::WriteFrameHeader(frame, lease.ref.generation);
  wire::WriteFrameTrailer(frame, nbytes, lease.ref.generation);
  entries_.push_back({lease});
  return lease;
}

std::span<std::byte> FakeLeaseSource::BytesOf(const PublishedLease& lease) const {
  return {data_ + lease.payload_offset, lease.nbytes};
}

wire::Descriptor FakeLeaseSource::DescriptorOf(const PublishedLease& lease,
                                               std::vector<wire::Way> ways) const {
  wire::Descriptor d;
  d.instance = instance_;
  d.lease = lease.ref;
  d.key = static_cast<int64_t>(lease.ref.id);
  d.nbytes = lease.nbytes;
  d.ways = std::move(ways);
  return d;
}

void FakeLeaseSource::End(const wire::LeaseRef& ref) {
  std::lock_guard lock(mutex_);
  entries_.at(ref.id).readable = false;
}

void FakeLeaseSource::Reuse(const PublishedLease& lease) {
  End(lease.ref);
  std::byte* const payload = data_ + lease.payload_offset;
  Overwrite(payload - wire::kFrameStampBytes, wire::kFrameStampBytes, std::byte{0});
  Overwrite(payload + lease.nbytes, wire::kFrameStampBytes, std::byte{0});
  (void)stamps_sealed_.exchange(true);
  Overwrite(payload, lease.nbytes, std::byte{0xdd});
}

int FakeLeaseSource::pins() const {
  std::lock_guard lock(mutex_);
  return pins_;
}

uint64_t FakeLeaseSource::opens() const {
  std::lock_guard lock(mutex_);
  return opens_;
}

uint64_t FakeLeaseSource::locates() const {
  std::lock_guard lock(mutex_);
  return locates_;
}

std::vector<wire::LeaseRef> FakeLeaseSource::done() const {
  std::lock_guard lock(mutex_);
  return done_;
}

std::vector<int64_t> FakeLeaseSource::done_keys() const {
  std::lock_guard lock(mutex_);
  return done_keys_;
}

std::vector<wire::LeaseRef> FakeLeaseSource::quiesced() const {
  std::lock_guard lock(mutex_);
  return quiesced_;
}

bool FakeLeaseSource::WaitUntil(const std::function<bool()>& condition) const {
  const Instant end = SaturatingAdd(RealClock().Now(), kTestLimit);
  while (!condition()) {
    if (RealClock().Now() >= end) return false;
    // The condition takes the lock itself, so a change may slip in between: look again soon.
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(5));
  }
  return true;
}

absl::StatusOr<PublishedLease> FakeLeaseSource::Readable(const wire::LeaseRef& ref, uint64_t offset,
                                                         uint64_t length) const {
  if (ref.id >= entries_.size() || !entries_[ref.id].readable ||
      entries_[ref.id].lease.ref.generation != ref.generation) {
    return MakeError(Reason::kLeaseEnded, StrCat("lease ", ref.id));
  }
  const PublishedLease& lease = entries_[ref.id].lease;
  if (lease.ref.token != ref.token) {
    return MakeError(Reason::kBadToken, StrCat("lease ", ref.id));
  }
  if (offset > lease.nbytes || length > lease.nbytes - offset) {
    return MakeError(Reason::kOutOfRange, StrCat("lease ", ref.id, " has ", lease.nbytes));
  }
  return lease;
}

absl::StatusOr<PinnedBytes> FakeLeaseSource::Open(const wire::LeaseRef& ref, uint64_t offset,
                                                  uint64_t length) {
  std::lock_guard lock(mutex_);
  const absl::StatusOr<PublishedLease> lease = Readable(ref, offset, length);
  if (!lease.ok()) return lease.status();
  ++pins_;
  ++opens_;
  changed_.notify_all();
  return PinnedBytes({data_ + lease->payload_offset + offset, length}, [this] { Unpin(); });
}

absl::StatusOr<std::span<const std::byte>> FakeLeaseSource::Locate(const wire::LeaseRef& ref,
                                                                   uint64_t offset,
                                                                   uint64_t length) {
  std::lock_guard lock(mutex_);
  const absl::StatusOr<PublishedLease> lease = Readable(ref, offset, length);
  if (!lease.ok()) return lease.status();
  ++locates_;
  changed_.notify_all();
  return BytesOf(*lease);
}

void FakeLeaseSource::Unpin() {
  std::lock_guard lock(mutex_);
  --pins_;
  changed_.notify_all();
}

void FakeLeaseSource::Done(const wire::LeaseRef& ref) {
  std::lock_guard lock(mutex_);
  done_.push_back(ref);
  changed_.notify_all();
}

bool FakeLeaseSource::DoneByKey(int64_t key) {
  std::lock_guard lock(mutex_);
  done_keys_.push_back(key);
  changed_.notify_all();
  return true;
}

void FakeLeaseSource::Quiesced(const wire::LeaseRef& ref) {
  std::lock_guard lock(mutex_);
  quiesced_.push_back(ref);
  changed_.notify_all();
}

namespace {

std::vector<absl::StatusOr<Landed>> Drive(std::span<PullOp* const> ops, Duration limit) {
  std::vector<std::optional<absl::StatusOr<Landed>>> results(ops.size());
  const Instant end = SaturatingAdd(RealClock().Now(), limit);
  size_t left = ops.size();
  while (left > 0 && RealClock().Now() < end) {
    bool moved = false;
    std::vector<pollfd> waits;
    Instant wake = end;
    for (size_t i = 0; i < ops.size(); ++i) {
      if (results[i].has_value()) continue;
      switch (ops[i]->Step()) {
        case PullOp::Progress::kDone:
          results[i] = ops[i]->TakeResult();
          --left;
          moved = true;
          break;
        case PullOp::Progress::kMoved:
          moved = true;
          break;
        case PullOp::Progress::kIdle:
          ops[i]->AddWaits(&waits, &wake);
          break;
      }
    }
    if (moved) continue;
    PollUntil(&waits, wake, RealClock().Now());
  }
  std::vector<absl::StatusOr<Landed>> out;
  for (auto& result : results) {
    out.push_back(result.has_value()
                      ? *std::move(result)
                      : absl::InternalError("the test's own limit passed before the op was done"));
  }
  return out;
}

}  // namespace

std::vector<absl::StatusOr<Landed>> DriveOps(std::span<const std::unique_ptr<PullOp>> ops,
                                             Duration limit) {
  std::vector<PullOp*> pointers;
  for (const auto& op : ops) pointers.push_back(op.get());
  return Drive(pointers, limit);
}

absl::StatusOr<Landed> DriveOp(PullOp& op, Duration limit) {
  PullOp* const pointers[] = {&op};
  return std::move(Drive(pointers, limit)[0]);
}

}  // namespace tensorferry::engine
