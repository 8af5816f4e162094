// engine/file, gateway side: a tensor in a file under /dev/shm, as SMG's workers read them.
//
//   auto files = ShmFiles::Open({});                              // once per process: it sweeps
//   absl::StatusOr<ShmFile> file = (*files)->Write(lease.bytes());
//   handle->set_name(file->name());                               // gone when `file` goes
//
// A file lives as long as its ShmFile, whatever becomes of the request, and is then removed if its
// name still leads to it (a worker may have removed it already). While it lives its gateway holds a
// lock on it; the lock goes with the process, however that ends, and the next sweep of any gateway
// removes what is left: at Open, and then every sweep_period on a thread of ShmFiles. Readers take
// no notice of the lock. Nothing is mapped, so nobody who shortens the file can hurt the gateway.
//
// In a forked child a ShmFile removes nothing; the lock is held until the child, too, has ended or
// called exec.
//
// Thread-safety: ShmFiles from any thread; Write copies, on the calling thread.
// Ownership: ShmFile outlives ShmFiles if need be.
#ifndef TENSORFERRY_ENGINE_FILE_SHM_FILES_H_
#define TENSORFERRY_ENGINE_FILE_SHM_FILES_H_

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/export.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/base/log.h"
#include "tensorferry/base/random.h"
#include "tensorferry/engine/file/shm_sweep.h"

namespace tensorferry::engine {

struct ShmFilesOptions {
  // Where, and how what dead gateways left is recognised.
  SweepOptions sweep = {};
  // Zero: only at Open.
  Duration sweep_period = std::chrono::minutes(1);
  LogSink log = {};
  // For tests: called when a file exists and is not locked yet, with its name.
  std::function<void(const std::string&)> created = {};
};

// One file. Movable; moved from, it holds nothing.
class TENSORFERRY_EXPORT ShmFile {
 public:
  ShmFile(ShmFile&& other) noexcept = default;
  ShmFile& operator=(ShmFile&& other) noexcept;
  ~ShmFile() { Remove(); }

  // As a handle carries it: without a slash.
  const std::string& name() const { return name_; }
  uint64_t nbytes() const { return nbytes_; }

 private:
  friend class ShmFiles;
  ShmFile(std::shared_ptr<const UniqueFd> directory, std::string name, UniqueFd fd);
  void Remove();

  std::shared_ptr<const UniqueFd> directory_;
  std::string name_;
  uint64_t nbytes_ = 0;
  UniqueFd fd_;
  pid_t owner_;
};

struct ShmFilesStats {
  uint64_t written = 0;  // files
  uint64_t failed = 0;   // that could not be written
  uint64_t swept = 0;    // of dead gateways, removed
  uint64_t swept_bytes = 0;
};

class TENSORFERRY_EXPORT ShmFiles {
 public:
  // Sweeps once, so that orphans do not take the room of what is to come. kSystem or kNoMemory
  // when the directory cannot be opened.
  static absl::StatusOr<std::unique_ptr<ShmFiles>> Open(ShmFilesOptions options);
  ~ShmFiles();
  ShmFiles(const ShmFiles&) = delete;
  ShmFiles& operator=(const ShmFiles&) = delete;

  // A new file with these bytes. kNoMemory when there is no room for them, kSystem when it may not
  // be written; nothing is left behind then, and the next one is tried as if nothing had been.
  absl::StatusOr<ShmFile> Write(std::span<const std::byte> bytes);

  const std::string& directory() const { return options_.sweep.directory; }
  ShmFilesStats stats() const;

 private:
  ShmFiles(ShmFilesOptions options, UniqueFd directory);
  absl::StatusOr<ShmFile> Create();
  absl::Status Fill(ShmFile& file, std::span<const std::byte> bytes) const;
  absl::Status Failure(int error, uint64_t nbytes) const;
  std::string NextName();
  void Sweep();
  void SweepPeriodically();

  const ShmFilesOptions options_;
  const std::shared_ptr<const UniqueFd> directory_;
  const pid_t owner_;
  std::atomic<uint64_t> written_ = 0, failed_ = 0, swept_ = 0, swept_bytes_ = 0;

  std::mutex mu_;
  std::condition_variable stop_changed_;
  bool stop_ = false;
  uint64_t counter_ = 0;
  RandomSource random_;
  std::thread sweeper_;
};

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_FILE_SHM_FILES_H_
