// engine/file, worker side: reads the files under /dev/shm that SMG's gateways, and ours, hand to
// workers.
//
//   auto engine = CreateFilePullEngine({});
//   auto op = engine->Start(request);      // a wire::FileWay; copies a few MiB at a Step
//   op->Acknowledge();                     // removes the file
//
// A message names the file, so nothing about it is believed: it is opened only under a name that a
// gateway can have made, and read only when it is a regular file with one name, of this process's
// user or one of `allowed_uids`, that reaches as far as the handle says. Nothing is mapped: a file
// that is shortened meanwhile is an error. It is removed after its bytes were taken, never else,
// and only while its name leads to what was read; that this fails is worth a warning.
//
// Errors: kBadDescriptor (the name), kLeaseEnded (no such file), kUidMismatch, kNotAllowed (no
// regular file, or one with several names), kOutOfRange (too short), kTimedOut, kSystem, kNoMemory.
//
// Thread-safety: see PullEngine. A Step waits for memory only, as a memcpy does.
#ifndef TENSORFERRY_ENGINE_FILE_FILE_PULL_ENGINE_H_
#define TENSORFERRY_ENGINE_FILE_FILE_PULL_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tensorferry/base/log.h"
#include "tensorferry/engine/file/shm_name.h"
#include "tensorferry/engine/pull_engine.h"

namespace tensorferry::engine {

struct FilePullOptions {
  std::string directory = std::string(kShmDirectory);
  // Remove a file once its bytes were taken, as SMG's workers do.
  bool unlink = true;
  // Owners whose files are read besides those of this process's effective user. Root needs them,
  // too.
  std::vector<uint32_t> allowed_uids = {};
  LogSink log = {};
};

std::unique_ptr<PullEngine> CreateFilePullEngine(FilePullOptions options);

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_FILE_FILE_PULL_ENGINE_H_
