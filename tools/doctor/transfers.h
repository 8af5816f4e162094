// Real test tensors over each transport, to a worker and back as a digest.
//
//   Transfer t = TryTransfer("tcp", {.to = "10.0.0.7:50051", .timeout = 5s});
//   if (!t.status.ok()) finding.Off(std::string(t.status.message()), t.fix);
//
// Thread-safety: none; waits for the worker.
#ifndef TENSORFERRY_TOOLS_DOCTOR_TRANSFERS_H_
#define TENSORFERRY_TOOLS_DOCTOR_TRANSFERS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "tensorferry/base/clock.h"
#include "tools/doctor/finding.h"
#include "tools/library_engines.h"

namespace tensorferry::tools {

struct TransferOptions {
  std::string to;           // HOST:PORT of the worker
  std::string listen = {};  // where it fetches from; empty: the address of the route to it
  Duration timeout = std::chrono::seconds(5);
  EngineFlags flags = {};
  bool assume_pull = false;
};

struct Transfer {
  absl::Status status = {};
  std::string evidence = {};
  std::string fix = {};  // empty when it arrived
};

Transfer TryTransfer(std::string_view transport, const TransferOptions& options);

// How far it had come.
enum class Stage : uint8_t { kPreparing, kSending };
// What an operator can do about a transfer that failed with `status`.
std::string FixFor(const absl::Status& status, std::string_view transport, Stage stage);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_DOCTOR_TRANSFERS_H_
