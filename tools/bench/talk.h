// What the two ends of a benchmark say to each other, in lines.
//
//   worker                             gateway
//   open {"engine":"tcp",…}            opened {"session":1,…}        one stream begins
//   join 1                             opened {"session":1,…}        others come to it
//   fill 7 65536 1                     filled                        a tensor is written
//   go                                 ok 5446… 1800 99120034 0.02 0 it is offered
//   usage                              usage 1.25 104857600 65600
//
// `go` finds both ends awake, however long writing took, and starts all streams at once.
// A gateway need not be ours: tests/peers/rust_exporter answers `fill` and `go`, too, the latter by
// `full` while it has no room. `error CODE TEXT` answers anything.
// Thread-safety: values and pure functions.
#ifndef TENSORFERRY_TOOLS_BENCH_TALK_H_
#define TENSORFERRY_TOOLS_BENCH_TALK_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tensorferry/base/clock.h"

namespace tensorferry::tools::bench {

// What a gateway is to set up, and how.
struct Opening {
  std::string engine = "tcp";
  // The worker's gRPC address: tensors go by whole calls, which the gateway makes. Empty: they are
  // offered.
  std::string rpc = {};
  // Payloads lie in memory of the caller, and are copied into the arena when they are offered.
  bool copy_in = false;
  uint64_t largest = 0;  // tensor
  uint64_t streams = 1;
  uint64_t batch = 1;    // tensors at a time, of each stream
  uint64_t corrupt = 0;  // change a byte of the tensor with this number, from 1; 0: of none
  std::string nixl_lib = {};
};
std::string FormatOpening(const Opening& opening);
// kProtocol, also for more than a million streams or tensors at a time.
absl::StatusOr<Opening> ParseOpening(std::string_view json);

// `count` tensors of `nbytes`, with the patterns of `key`, `key` + 1, …
struct Request {
  int64_t key = 0;
  uint64_t nbytes = 0;
  uint64_t count = 1;
};
std::string FormatRequest(const Request& request);
absl::StatusOr<Request> ParseRequest(std::string_view line);

// One tensor that can be fetched; for whole calls, one that has arrived.
struct Offer {
  std::string descriptor = {};  // raw bytes; in the line, hexadecimal
  Duration gateway = {};        // from where its bytes were written until this line was
  Instant began = {};           // by the gateway's clock
  double fill_cpu = 0;          // seconds that writing the pattern cost, since the last offer
  int64_t faults = 0;           // page faults in staging, writing and publishing
  std::string transport = {};   // of whole calls: what carried the bytes
};
std::string FormatOffer(const Offer& offer);
// The gateway's error where that is the line; kBusy for `full`; kProtocol.
absl::StatusOr<Offer> ParseOffer(std::string_view line);

std::string FormatError(const absl::Status& status);
// What is behind `word` in a line that begins with it; the gateway's error; kProtocol.
absl::StatusOr<std::string> AnswerTo(std::string_view word,
                                     const absl::StatusOr<std::string>& line);

}  // namespace tensorferry::tools::bench

#endif  // TENSORFERRY_TOOLS_BENCH_TALK_H_
