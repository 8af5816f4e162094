// What a worker says of its requests, and the tensors that it keeps.
//
//   Journal journal({.json = true, .save = "received"});
//   if (absl::Status s = journal.Prepare(); !s.ok()) return s;
//   journal.Tensor(received);            // {"event":"tensor", …}
//   journal.Generate(generated);         // {"event":"generate", …}
//
// Thread-safety: everything from any thread; lines are whole, and come in the order of the calls.
#ifndef TENSORFERRY_TOOLS_SERVE_JOURNAL_H_
#define TENSORFERRY_TOOLS_SERVE_JOURNAL_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "tools/serve/engine.h"
#include "tools/serve/intake.h"

namespace tensorferry::tools {

struct JournalOptions {
  bool json = false;
  std::string save = {};  // folder for one .safetensors file per tensor, or empty
};

class Journal {
 public:
  explicit Journal(JournalOptions options) : options_(std::move(options)) {}

  // Makes the folder.
  absl::Status Prepare() const;
  // Fails when the tensor cannot be saved.
  absl::Status Tensor(const ReceivedTensor& received);
  void Failure(const std::string& request_id, const absl::Status& status) const;
  void Generate(const Generated& generated) const;

 private:
  absl::Status Save(const ReceivedTensor& received);

  const JournalOptions options_;
  std::atomic<uint64_t> saved_ = 0;
};

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_SERVE_JOURNAL_H_
