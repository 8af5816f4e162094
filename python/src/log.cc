#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "python/src/bindings.h"
#include "python/src/process.h"

namespace nb = nanobind;

namespace tensorferry::python {
namespace {

constexpr size_t kMaxLines = 1000;

struct Lines {
  std::mutex mu;
  std::condition_variable changed;
  std::deque<std::pair<int, std::string>> lines;
  bool stopped = false;
};

Lines& TheLines() {
  static auto* lines = new Lines();  // threads may outlive static destruction
  return *lines;
}

// Levels of Python's logging.
int PythonLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return 10;
    case LogLevel::kInfo:
      return 20;
    case LogLevel::kWarning:
      return 30;
    case LogLevel::kError:
      break;
  }
  return 40;
}

// Waits for a line; none once stopped and all are fetched.
std::optional<std::pair<int, std::string>> NextLog() {
  const NoGil nogil;
  Lines& all = TheLines();
  std::unique_lock<std::mutex> lock(all.mu);
  all.changed.wait(lock, [&] { return all.stopped || !all.lines.empty(); });
  if (all.lines.empty()) return std::nullopt;
  std::pair<int, std::string> line = std::move(all.lines.front());
  all.lines.pop_front();
  return line;
}

void StopLog() {
  Lines& all = TheLines();
  const std::lock_guard<std::mutex> lock(all.mu);
  all.stopped = true;
  all.changed.notify_all();
}

}  // namespace

LogSink QueueLog() {
  return [](LogLevel level, std::string_view line) {
    Lines& all = TheLines();
    const std::lock_guard<std::mutex> lock(all.mu);
    if (all.stopped || all.lines.size() >= kMaxLines) return;
    all.lines.emplace_back(PythonLevel(level), line);
    all.changed.notify_one();
  };
}

void BindLog(nb::module_& module) {
  module.def("next_log", &NextLog);
  module.def("stop_log", &StopLog);
}

}  // namespace tensorferry::python
