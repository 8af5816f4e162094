// Removes the files that dead gateways left behind under /dev/shm.
//
//   SweepResult swept = SweepShmFiles({});          // swept.removed files, swept.bytes of memory
//
// A file of ours belongs to a live gateway as long as somebody holds its lock, and to nobody
// afterwards: no pid is asked, so pid namespaces, reused pids and pid 1 do not matter. Stock
// gateways hold no lock, so their files are judged as they do it themselves, by /proc, but only
// those that are older than `stock_age`; and their probe files, which live for an instant, by age
// alone. Files of other users, and names of a form that is not known, are left alone.
//
// Thread-safety: pure but for the file system; any number of processes may sweep at once.
#ifndef TENSORFERRY_ENGINE_FILE_SHM_SWEEP_H_
#define TENSORFERRY_ENGINE_FILE_SHM_SWEEP_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "tensorferry/base/clock.h"
#include "tensorferry/base/export.h"
#include "tensorferry/engine/file/shm_name.h"

namespace tensorferry::engine {

struct SweepOptions {
  std::string directory = std::string(kShmDirectory);
  std::string proc = "/proc";  // for tests
  Duration stock_age = std::chrono::minutes(1);
};

struct SweepResult {
  uint64_t removed = 0;  // files
  uint64_t bytes = 0;    // that they held
};

TENSORFERRY_EXPORT SweepResult SweepShmFiles(const SweepOptions& options);

// Of the file that `fd` is open on: whether `name` in `directory` still leads to it.
bool LeadsTo(int directory, const std::string& name, int fd);

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_FILE_SHM_SWEEP_H_
