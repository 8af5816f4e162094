#include "tools/bench/usage.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>

namespace tensorferry::tools::bench {
namespace {

// A child that waits until its parent lets go of it, after `work`.
class Child {
 public:
  template <typename F>
  explicit Child(F work) {
    int down[2], up[2];
    if (::pipe(down) != 0 || ::pipe(up) != 0) ADD_FAILURE() << "pipe";
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(down[1]);
      work();
      (void)!::write(up[1], "x", 1);
      char byte;
      (void)!::read(down[0], &byte, 1);
      ::_exit(0);
    }
    ::close(down[0]);
    ::close(up[1]);
    release_ = down[1];
    char byte;
    EXPECT_EQ(::read(up[0], &byte, 1), 1);
    ::close(up[0]);
  }
  ~Child() {
    ::close(release_);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
  int release_;
};

void Burn(double seconds) {
  const double until = ThreadCpuSeconds() + seconds;
  while (ThreadCpuSeconds() < until) {
  }
}

TEST(BenchUsage, CountsWhatAProcessStarted) {
  const Child child([] { Burn(0.05); });
  const auto with = UsageOfTree(::getpid(), 0);
  const auto without = UsageOfTree(::getpid(), child.pid());
  const auto alone = UsageOfTree(child.pid(), 0);
  ASSERT_TRUE(with.ok() && without.ok() && alone.ok());
  EXPECT_GE(alone->cpu_seconds, 0.05);
  // This process goes on meanwhile, so that the second figure is a little late.
  EXPECT_GT(with->cpu_seconds, alone->cpu_seconds);
  EXPECT_GE(with->peak_bytes, alone->peak_bytes);
  EXPECT_GT(alone->peak_bytes, 0u);
}

TEST(BenchUsage, PeaksAreOfTouchedMemory) {
  constexpr size_t kBytes = 64 << 20;
  const Child child([] {
    const auto memory = std::make_unique_for_overwrite<char[]>(kBytes);
    std::memset(memory.get(), 1, kBytes);
    // Or the compiler leaves both out.
    EXPECT_EQ(static_cast<volatile char*>(memory.get())[kBytes / 2], 1);
  });
  const auto before = UsageOfTree(child.pid(), 0);
  ASSERT_TRUE(before.ok());
  EXPECT_GE(before->peak_bytes, kBytes);
}

TEST(BenchUsage, AProcessThatIsNotThereIsAnError) {
  pid_t gone;
  {
    const Child child([] {});
    gone = child.pid();
  }
  EXPECT_FALSE(UsageOfTree(gone, 0).ok());
}

TEST(BenchUsage, FaultsAreThoseOfThisThread) {
  constexpr size_t kBytes = 8 << 20;
  const auto memory = std::make_unique_for_overwrite<char[]>(kBytes);
  const long before = ThreadFaults();
  for (size_t i = 0; i < kBytes; i += 4096) static_cast<volatile char*>(memory.get())[i] = 1;
  EXPECT_GT(ThreadFaults(), before);
}

TEST(BenchUsage, TheMachineIsNamed) {
  EXPECT_NE(MachineText().find(" cores, Linux "), std::string::npos) << MachineText();
}

}  // namespace
}  // namespace tensorferry::tools::bench
