#include "tools/bench/usage.h"

#include <sys/resource.h>
#include <sys/utsname.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "absl/strings/ascii.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry::tools::bench {
namespace {

double Seconds(const timespec& t) {
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

std::string ProcPath(pid_t pid, std::string_view file) { return StrCat("/proc/", pid, "/", file); }

// What follows "NAME:" in a file of such lines; empty: nothing does.
std::string FieldOf(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const auto key = absl::StripAsciiWhitespace(absl::string_view(line).substr(0, colon));
    if (StdView(key) != name) continue;
    return std::string(absl::StripAsciiWhitespace(absl::string_view(line).substr(colon + 1)));
  }
  return "";
}

// The process and its descendants.
std::vector<pid_t> Tree(pid_t root, pid_t without) {
  std::vector<pid_t> found = {root};
  for (size_t i = 0; i < found.size(); ++i) {
    std::error_code gone;  // it may end at any moment
    std::filesystem::directory_iterator thread(ProcPath(found[i], "task"), gone);
    for (; !gone && thread != std::filesystem::directory_iterator(); thread.increment(gone)) {
      std::ifstream children(thread->path() / "children");
      for (pid_t child; children >> child;) {
        if (child != without) found.push_back(child);
      }
    }
  }
  return found;
}

}  // namespace

absl::StatusOr<Usage> UsageOfTree(pid_t root, pid_t without) {
  Usage usage;
  for (const pid_t pid : Tree(root, without)) {
    clockid_t clock;
    timespec t = {};
    const int error = ::clock_getcpuclockid(pid, &clock);
    if (error != 0 || ::clock_gettime(clock, &t) != 0) {
      if (pid == root) {
        return SystemError(error != 0 ? error : errno, StrCat("the CPU time of process ", pid));
      }
      continue;
    }
    usage.cpu_seconds += Seconds(t);
    const std::string peak = FieldOf(ProcPath(pid, "status"), "VmHWM");  // "123 kB"
    if (!peak.empty()) usage.peak_bytes += std::stoull(peak) << 10;
  }
  return usage;
}

void ResetPeak(pid_t root, pid_t without) {
  for (const pid_t pid : Tree(root, without)) {
    std::ofstream(ProcPath(pid, "clear_refs")) << "5";  // see proc(5)
  }
}

double ThreadCpuSeconds() {
  timespec t = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return Seconds(t);
}

long ThreadFaults() {
  rusage usage = {};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

std::string MachineText() {
  std::string cpu = FieldOf("/proc/cpuinfo", "model name");
  utsname system = {};
  ::uname(&system);
  if (cpu.empty()) cpu = system.machine;
  return StrCat(cpu, ", ", std::thread::hardware_concurrency(), " cores, ", system.sysname, " ",
                system.release);
}

}  // namespace tensorferry::tools::bench
