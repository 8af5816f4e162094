// What every transport does on the gateway's side: offer the leases of one arena to readers
// elsewhere.
//
// The exporter owns its engines and calls them; an engine calls back through LeaseSource, from its
// own threads. Order: Start, then any number of Publish/Retire, then the destructor, after which
// the engine never calls LeaseSource again. `Retire` is the moment that matters: once it has
// returned, no *new* reader can get at the lease; when it returns false, old readers still do, and
// the engine calls LeaseSource::Quiesced exactly once when the last has gone (which may be before
// Retire has returned its false, on another thread).
// Thread-safety: Publish, Retire and way() are called from any thread, concurrently for different
// leases. Publish happens before the lease's descriptor leaves the exporter. Locks: the exporter
// never calls an engine while it holds a lock that LeaseSource takes; an engine calls LeaseSource
// while holding none that its Publish or Retire take, for Done may end a lease and so come back as
// Retire on the same thread.
#ifndef TENSORFERRY_ENGINE_EXPORT_ENGINE_H_
#define TENSORFERRY_ENGINE_EXPORT_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "tensorferry/wire/descriptor.h"

namespace tensorferry::engine {

// Bytes of a lease that cannot be freed or reused while this lives.
class PinnedBytes {
 public:
  PinnedBytes() = default;
  PinnedBytes(std::span<const std::byte> bytes, std::function<void()> unpin)
      : bytes_(bytes), unpin_(std::move(unpin)) {}
  PinnedBytes(PinnedBytes&& other) noexcept
      : bytes_(std::exchange(other.bytes_, {})), unpin_(std::exchange(other.unpin_, nullptr)) {}
  PinnedBytes& operator=(PinnedBytes&& other) noexcept {
    if (this != &other) {
      Reset();
      bytes_ = std::exchange(other.bytes_, {});
      unpin_ = std::exchange(other.unpin_, nullptr);
    }
    return *this;
  }
  ~PinnedBytes() { Reset(); }

  std::span<const std::byte> bytes() const { return bytes_; }
  void Reset() {
    if (unpin_) std::exchange(unpin_, nullptr)();
    bytes_ = {};
  }

 private:
  std::span<const std::byte> bytes_;
  std::function<void()> unpin_;
};

// What the exporter offers to its engines. Thread-safe.
class LeaseSource {
 public:
  virtual ~LeaseSource() = default;
  // A reader begins. kLeaseEnded, kBadToken, kOutOfRange.
  virtual absl::StatusOr<PinnedBytes> Open(const wire::LeaseRef& ref, uint64_t offset,
                                           uint64_t length) = 0;
  // The same of a reader that fetches by itself, from an engine that is one_sided(): where the whole
  // payload lies, between the stamps of its frame (wire/frame.h). Nothing is pinned. Both stamps go
  // before the memory is another lease's, and it rests after a lease that ended before its readers
  // were done.
  virtual absl::StatusOr<std::span<const std::byte>> Locate(const wire::LeaseRef& ref,
                                                            uint64_t offset, uint64_t length) = 0;
  // A reader has all its bytes.
  virtual void Done(const wire::LeaseRef& ref) = 0;
  // The same by the lease's key alone, as SMG's workers say it. False when no readable lease has
  // the key.
  virtual bool DoneByKey(int64_t key) = 0;
  // The last old reader of a lease has gone, after Retire returned false.
  virtual void Quiesced(const wire::LeaseRef& ref) = 0;
};

// The arena as an engine sees it.
struct ArenaView {
  std::byte* data = nullptr;
  uint64_t size = 0;
  int memfd = -1;  // borrowed
  uint32_t max_leases = 0;
  wire::InstanceId instance = {};
};

struct PublishedLease {
  wire::LeaseRef ref = {};
  uint64_t payload_offset = 0;  // from ArenaView::data
  uint64_t nbytes = 0;
};

class ExportEngine {
 public:
  virtual ~ExportEngine() = default;

  // "tcp", "local", …: the label used everywhere.
  virtual std::string_view transport() const = 0;
  virtual absl::Status Start(const ArenaView& arena, LeaseSource* leases) = 0;
  // How readers reach this engine, for descriptors; of one for SMG's, with the address of the
  // arena's start. Only after Start.
  virtual wire::Way way() const = 0;

  // A lease may be read from now on. Engines hear of every one; one for SMG's workers when a
  // descriptor for them is made, if ever.
  virtual void Publish(const PublishedLease& lease) = 0;
  // False: still being read, Quiesced will follow. Also for leases that were not published here:
  // true.
  virtual bool Retire(const wire::LeaseRef& ref) = 0;

  // Readers may fetch without this process taking part: frames are written, and memory must rest
  // after a lease that ended before its readers were done.
  virtual bool one_sided() const { return false; }
  // SMG's workers read from it: its way is in their descriptors, and not in ours.
  virtual bool for_smg() const { return false; }
  // Its way stands before the others' in descriptors: over hardware that beats sockets.
  virtual bool preferred() const { return false; }
  // How often that which readers connect to has been started: what a reader learned of an earlier one
  // is of no use. 0 while there is none.
  virtual uint64_t epoch() const { return 1; }
};

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_EXPORT_ENGINE_H_
