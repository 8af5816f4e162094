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
  // kForEver: no timeout. For `spin` it looks and yields, and sleeps after that: to wake what sleeps takes longer than
  // many a tensor.
  absl::StatusOr<std::string> Read(Duration timeout, Duration spin = {});
  static constexpr Duration kForEver = Duration::max();

 private:
  // Zero bytes: there are none yet. kPeerClosed.
  absl::StatusOr<size_t> Receive();

  UniqueFd fd_;
  std::string pending_;
};

}  // namespace tensorferry::tools::bench

#endif  // TENSORFERRY_TOOLS_BENCH_LINE_STREAM_H_
