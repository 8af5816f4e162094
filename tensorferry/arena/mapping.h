// The memory of an arena: an anonymous file (memfd) without a name, so that a killed process leaves
// nothing behind, sealed so that nobody can shrink it under a reader's feet.
//
//   auto mapping = Mapping::Create({.bytes = 1 << 30});
//   std::memcpy(mapping->data() + offset, ...);
//   SendFd(mapping->fd());            // the receiver can map it for reading only
//
// Pages are touched in the background after Create (first touch costs several times a copy);
// WaitPrefaulted() waits for that. Not inherited over fork (MADV_DONTFORK): a child has no mapping
// there.
// Thread-safety: const calls from any thread.
// Ownership: unmaps and closes when destroyed, after the background thread was stopped and joined.
#ifndef TENSORFERRY_ARENA_MAPPING_H_
#define TENSORFERRY_ARENA_MAPPING_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/base/log.h"

namespace tensorferry::arena {

struct MappingOptions {
  uint64_t bytes = 0;                // rounded up to whole pages; 0 is refused
  std::string name = "tensorferry";  // seen in /proc/PID/maps only
  // The setting of the caller's that `bytes` came from, for error texts.
  std::string setting = "arena_bytes";
  bool prefault = true;
  // Readers map it read-only (F_SEAL_FUTURE_WRITE); without it, they may write.
  bool read_only_to_others = true;
  LogSink log = nullptr;
};

class Mapping {
 public:
  // kNoMemory names the limit that was hit (control group, machine, RLIMIT_AS, RLIMIT_FSIZE,
  // RLIMIT_NOFILE, …), its value and the setting to lower.
  static absl::StatusOr<std::unique_ptr<Mapping>> Create(const MappingOptions& options);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const { return memory_.data(); }
  uint64_t size() const { return memory_.size(); }
  int fd() const { return fd_.get(); }
  // Every page has been touched.
  bool prefaulted() const;
  // Returns when touching has ended: with all pages, or early because the system refused (which is
  // logged, and prefaulted() stays false). At once with `prefault = false`.
  void WaitPrefaulted() const;

 private:
  enum class Prefaulting { kOff, kRunning, kDone, kFailed };

  Mapping(UniqueFd fd, std::span<std::byte> memory);
  absl::Status StartPrefault(const LogSink& log);
  void RunPrefault(const std::stop_token& stop, const LogSink& log);

  UniqueFd fd_;
  std::span<std::byte> memory_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  Prefaulting prefaulting_ = Prefaulting::kOff;
  std::jthread prefault_;
};

}  // namespace tensorferry::arena

#endif  // TENSORFERRY_ARENA_MAPPING_H_
