#include "tools/bench/line_stream.h"

#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <cerrno>
#include <vector>

#include "tensorferry/base/error.h"
#include "tensorferry/base/poll.h"
#include "tensorferry/base/text.h"

namespace tensorferry::tools::bench {
namespace {

constexpr size_t kLongest = 1 << 20;

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

absl::StatusOr<size_t> LineStream::Receive() {
  char buffer[4096];
  ssize_t n;
  do {
    n = ::recv(fd_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n < 0 && errno == EAGAIN) return 0;
  if (n <= 0) return Closed();
  pending_.append(buffer, static_cast<size_t>(n));
  return static_cast<size_t>(n);
}

absl::StatusOr<std::string> LineStream::Read(Duration timeout, Duration spin) {
  const RealClock clock;
  const Instant began = clock.Now();
  const Instant until = timeout == kForEver ? kNever : SaturatingAdd(began, timeout);
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
    const absl::StatusOr<size_t> received = Receive();
    if (!received.ok()) return received.status();
    if (*received > 0) continue;
    const Instant now = clock.Now();
    if (now >= until) {
      return MakeError(Reason::kTimedOut,
                       "the other end of the benchmark does not answer; is it stuck, or the "
                       "machine much too busy?");
    }
    if (now - began < spin) {
      ::sched_yield();
      continue;
    }
    std::vector<pollfd> waits = {{fd_.get(), POLLIN, 0}};
    (void)PollUntil(&waits, until, now);
  }
}

}  // namespace tensorferry::tools::bench
