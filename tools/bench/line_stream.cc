#include "tools/bench/line_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry::tools::bench {
namespace {

constexpr size_t kLongest = 1 << 20;

// Milliseconds for poll; -1: for ever.
int Left(Instant until) {
  if (until == kNever) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - RealClock().Now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000));
}

absl::Status Closed() {
  return MakeError(Reason::kPeerClosed, "the other end of the benchmark has gone");
}

}  // namespace

absl::Status LineStream::Write(std::string_view line) {
  const std::string text = StrCat(line, "\n");
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::send(fd_.get(), text.data() + done, text.size() - done, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Closed();
    done += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> LineStream::Read(Duration timeout) {
  const Instant until = timeout == kForEver ? kNever : SaturatingAdd(RealClock().Now(), timeout);
  for (size_t searched = 0;;) {
    const size_t end = pending_.find('\n', searched);
    if (end != std::string::npos) {
      std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return line;
    }
    searched = pending_.size();
    if (searched > kLongest) {
      return MakeError(Reason::kProtocol, StrCat("a line of more than ", kLongest, " bytes"));
    }
    pollfd wait{fd_.get(), POLLIN, 0};
    const int ready = ::poll(&wait, 1, Left(until));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      if (RealClock().Now() < until) continue;
      return MakeError(Reason::kTimedOut,
                       "the other end of the benchmark does not answer; is it stuck, or the "
                       "machine much too busy?");
    }
    char buffer[4096];
    const ssize_t n = ::recv(fd_.get(), buffer, sizeof(buffer), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Closed();
    pending_.append(buffer, static_cast<size_t>(n));
  }
}

}  // namespace tensorferry::tools::bench
