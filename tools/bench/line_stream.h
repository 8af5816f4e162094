// Lines over a socket, each way, for the talk between the two ends of a benchmark.
//
//   LineStream gateway(std::move(fd));
//   gateway.Write("7 65536");
//   absl::StatusOr<std::string> answer = gateway.Read(kPatience);
//
// Thread-safety: none; one thread for each stream.
#ifndef TENSORFERRY_TOOLS_BENCH_LINE_STREAM_H_
#define TENSORFERRY_TOOLS_BENCH_LINE_STREAM_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/fd.h"

namespace tensorferry::tools::bench {

// For whatever the other end has to do before it answers.
inline constexpr Duration kPatience = std::chrono::seconds(60);

class LineStream {
 public:
  explicit LineStream(UniqueFd fd) : fd_(std::move(fd)) {}

  // kPeerClosed.
  absl::Status Write(std::string_view line);
  // Without the end of the line. kTimedOut, kPeerClosed, kProtocol for a line without end.
  // kForEver: no timeout.
  absl::StatusOr<std::string> Read(Duration timeout);
  static constexpr Duration kForEver = Duration::max();

 private:
  UniqueFd fd_;
  std::string pending_;
};

}  // namespace tensorferry::tools::bench

#endif  // TENSORFERRY_TOOLS_BENCH_LINE_STREAM_H_
