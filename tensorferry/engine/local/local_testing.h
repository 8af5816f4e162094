// Helpers for tests of engine/local: scratch directories, child processes, and what this process
// has open.
//
//   TempDir dir;
//   ChildProcess child([] { return MakeWorker(); });      // before the test starts threads
//   EXPECT_EQ(child.Ask("view", Encoded(descriptor)), "ok");
//   child.Kill();
//
// Thread-safety: none; one test's own.
#ifndef TENSORFERRY_ENGINE_LOCAL_LOCAL_TESTING_H_
#define TENSORFERRY_ENGINE_LOCAL_LOCAL_TESTING_H_

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "tensorferry/base/fd.h"
#include "tensorferry/base/temp_dir_testing.h"
#include "tensorferry/engine/pull_engine.h"
#include "tensorferry/wire/descriptor.h"

namespace tensorferry::engine {

// A child that answers requests until it is killed or this is destroyed. Forked without exec: this
// process may have no other thread at that moment.
class ChildProcess {
 public:
  using Handler = std::function<std::string(std::string_view verb, std::string_view argument)>;
  // `make_handler` runs in the child.
  explicit ChildProcess(const std::function<Handler()>& make_handler);
  ~ChildProcess() { Kill(); }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  std::string Ask(std::string_view verb, std::string_view argument = "");
  // Without waiting for the answer, which the next Hear returns.
  void Tell(std::string_view verb, std::string_view argument = "");
  std::string Hear();
  void Kill();  // -9, and waits for its end
  void Stop();  // SIGSTOP, and waits until it is
  void WaitUntilStopped();
  void Continue();

 private:
  pid_t pid_ = -1;
  UniqueFd socket_;
};

// A worker that keeps what it views. Verbs (argument: an encoded descriptor where it says D):
//   view D, copy D → "ok" or the reason's name      same → "yes" when no viewed byte has changed
//   release → drops all views      fork → pid of a child that only sleeps, and holds all we have
ChildProcess::Handler MakeWorker();

// A gateway with a FakeLeaseSource. Verbs:
//   start PATH, instance N (before start) → "ok" or the reason's name
//   publish NBYTES → an encoded descriptor
ChildProcess::Handler MakeGateway();

// A child that holds all that this process has open and does nothing, until it is killed or the
// time limit of a test has passed.
pid_t ForkSleeper();

std::string Encoded(const wire::Descriptor& descriptor);
wire::Descriptor Decoded(std::string_view bytes);

// Waits until it is so; false after kTestLimit. For what no event tells.
bool Eventually(const std::function<bool()>& condition);

size_t OpenFds();        // of this process
size_t MemfdMappings();  // of this process

// "ok" or the reason's name.
std::string ReasonText(const absl::Status& status);

// A memfd of so many bytes, sealed like ours unless told otherwise.
UniqueFd MakeMemfd(size_t bytes, bool sealed = true);

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_LOCAL_LOCAL_TESTING_H_
