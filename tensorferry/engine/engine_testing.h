// Helpers for tests of engines: an exporter's side without an exporter, a puller's side without a
// puller.
//
//   FakeLeaseSource leases({.arena_bytes = 1 << 20});
//   engine->Start(leases.arena(), &leases);
//   PublishedLease lease = leases.Add(4096);
//   engine->Publish(lease);
//   wire::Descriptor d = leases.DescriptorOf(lease, {engine->way()});
//   auto op = pull_engine->Start({.descriptor = &d, .length = 4096, .into = buffer});
//   absl::StatusOr<Landed> landed = DriveOp(*op);
//   EXPECT_TRUE(leases.WaitUntil([&] { return leases.pins() == 0; }));
//
// Thread-safety: FakeLeaseSource from any thread.
// Ownership: it owns the arena and outlives the engine.
#ifndef TENSORFERRY_ENGINE_ENGINE_TESTING_H_
#define TENSORFERRY_ENGINE_ENGINE_TESTING_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/engine/export_engine.h"
#include "tensorferry/engine/pull_engine.h"
#include "tensorferry/wire/descriptor.h"

namespace tensorferry::engine {

// Long enough for a loaded machine under a sanitizer; no test that passes waits for it.
inline constexpr Duration kTestLimit = std::chrono::seconds(30);

class FakeLeaseSource : public LeaseSource {
 public:
  struct Options {
    uint64_t arena_bytes = uint64_t{1} << 20;
    uint32_t max_leases = 1024;
    // First byte of the instance id, so that two sources of one test differ.
    uint8_t instance = 1;
  };
  explicit FakeLeaseSource(const Options& options);
  FakeLeaseSource() : FakeLeaseSource(Options{}) {}
  ~FakeLeaseSource() override;
  FakeLeaseSource(const FakeLeaseSource&) = delete;
  FakeLeaseSource& operator=(const FakeLeaseSource&) = delete;

  // A memfd, sealed as the real one is.
  ArenaView arena() const;

  // A readable lease, filled with a pattern of its own, 64-byte aligned, with the stamps of its
  // frame around it. The arena is never reused by itself.
  PublishedLease Add(uint64_t nbytes);
  std::span<std::byte> BytesOf(const PublishedLease& lease) const;
  wire::Descriptor DescriptorOf(const PublishedLease& lease, std::vector<wire::Way> ways) const;
  // Open refuses it from now on.
  void End(const wire::LeaseRef& ref);
  // Ends it, and makes its memory another lease's, as an exporter does: the stamps go first.
  void Reuse(const PublishedLease& lease);

  int pins() const;                          // ranges open at this moment
  uint64_t opens() const;                    // granted since the start
  uint64_t locates() const;                  // the same of Locate
  std::vector<wire::LeaseRef> done() const;  // calls of Done, in order
  std::vector<int64_t> done_keys() const;    // calls of DoneByKey, in order
  std::vector<wire::LeaseRef> quiesced() const;
  // Waits for a change of any of the above that makes `condition` true; false after kTestLimit.
  bool WaitUntil(const std::function<bool()>& condition) const;

  absl::StatusOr<PinnedBytes> Open(const wire::LeaseRef& ref, uint64_t offset,
                                   uint64_t length) override;
  absl::StatusOr<std::span<const std::byte>> Locate(const wire::LeaseRef& ref, uint64_t offset,
                                                    uint64_t length) override;
  void Done(const wire::LeaseRef& ref) override;
  bool DoneByKey(int64_t key) override;
  void Quiesced(const wire::LeaseRef& ref) override;

 private:
  struct Entry {
    PublishedLease lease;
    bool readable = true;
  };
  void Unpin();
  // With mutex_: the readable lease that a reader may have this range of.
  absl::StatusOr<PublishedLease> Readable(const wire::LeaseRef& ref, uint64_t offset,
                                          uint64_t length) const;

  const Options options_;
  std::atomic<bool> stamps_sealed_ = false;
  const uint64_t size_;  // its arena_bytes, and room for frames
  UniqueFd memfd_;
  std::byte* data_ = nullptr;
  wire::InstanceId instance_ = {};

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<Entry> entries_;  // the index is the lease's id
  uint64_t used_ = 0;
  int pins_ = 0;
  uint64_t opens_ = 0;
  uint64_t locates_ = 0;
  std::vector<wire::LeaseRef> done_;
  std::vector<int64_t> done_keys_;
  std::vector<wire::LeaseRef> quiesced_;
};

// Steps the op as a puller would, asleep in poll whenever it is idle, so that a forgotten wait
// shows. An op that is not done within `limit` fails with an Internal status that says so.
absl::StatusOr<Landed> DriveOp(PullOp& op, Duration limit = kTestLimit);
// The same for many ops on this thread. One result per op, in order.
std::vector<absl::StatusOr<Landed>> DriveOps(std::span<const std::unique_ptr<PullOp>> ops,
                                             Duration limit = kTestLimit);

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_ENGINE_TESTING_H_
