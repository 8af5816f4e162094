// Signals that ask the process to end, as something to poll for.
//
//   const EndSignals end;                  // before any thread is started: they inherit the mask
//   poll(end.fd(), …);                     // readable once SIGTERM or SIGINT came
//
// Thread-safety: fd() from any thread.
#ifndef TENSORFERRY_TOOLS_SIGNALS_H_
#define TENSORFERRY_TOOLS_SIGNALS_H_

#include <sys/signalfd.h>

#include <csignal>

#include "tensorferry/base/fd.h"

namespace tensorferry::tools {

class EndSignals {
 public:
  EndSignals() {
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGTERM);
    ::sigaddset(&set, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
    fd_ = UniqueFd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
};

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_SIGNALS_H_
