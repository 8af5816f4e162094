// A worker's connection to the gateway of a benchmark, whichever process that is.
//
//   auto link = Link::Start(2);                               // a process of this program
//   auto link = Link::Dial(address, 2);                       // a `bench --serve` of another host
//   auto link = Link::StartProgram("stock_exporter 18515 …"); // what answers `fill`
//   (*link)->Open(opening);
//   (*link)->stream(0).Write(FormatRequest(request));
//
// Thread-safety: each stream is used by one thread; the rest by one.
// Ownership: a gateway that was started ends with the link.
#ifndef TENSORFERRY_TOOLS_BENCH_LINK_H_
#define TENSORFERRY_TOOLS_BENCH_LINK_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/base/net.h"
#include "tools/bench/line_stream.h"
#include "tools/bench/talk.h"
#include "tools/bench/usage.h"

namespace tensorferry::tools::bench {

class Link {
 public:
  static absl::StatusOr<std::unique_ptr<Link>> Start(size_t streams);
  static absl::StatusOr<std::unique_ptr<Link>> Dial(const SocketAddress& gateway, size_t streams);
  // By a shell; it says `ready` first, and has one stream: its standard input and output. It is
  // killed at the end: NIXL's exit may crash.
  static absl::StatusOr<std::unique_ptr<Link>> StartProgram(const std::string& command);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Once, before anything is asked for; not for a program.
  absl::Status Open(const Opening& opening);
  LineStream& stream(size_t i) { return streams_[i]; }
  size_t streams() const { return streams_.size(); }
  // A gateway of ours: knows `open` and `usage`, and has batches.
  bool ours() const { return ours_; }
  // 0: on another host, or at least not started here.
  pid_t child() const { return child_; }

  // What the gateway has cost so far, and of its arena per tensor.
  struct GatewayUsage {
    Usage usage;
    double arena_bytes_per_tensor = 0;
  };
  absl::StatusOr<GatewayUsage> AskUsage();
  absl::Status ResetPeak();

  // What must be added to the gateway's clock to have this process's, and how far off that may be.
  // Both 0 on one host.
  Duration clock_offset() const { return clock_offset_; }
  Duration clock_error() const { return clock_error_; }
  const std::string& machine() const { return machine_; }
  const std::string& version() const { return version_; }

 private:
  Link() = default;
  absl::Status Spawn(const std::vector<std::string>& command, std::vector<UniqueFd> inherited);
  absl::Status WaitReady();
  absl::Status FindClock();

  std::vector<LineStream> streams_;
  bool ours_ = true;
  pid_t child_ = 0;
  Duration clock_offset_ = {}, clock_error_ = {};
  std::string machine_, version_;
};

}  // namespace tensorferry::tools::bench

#endif  // TENSORFERRY_TOOLS_BENCH_LINK_H_
