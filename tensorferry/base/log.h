// Where the library's few messages go: a function that the caller injects. No sink, no output.
//
//   options.log = [](LogLevel level, std::string_view line) { ... };
//
// A sink may be called from any thread that the library owns or was called on, must not throw, and
// must not call back into the object that it was given to.
#ifndef TENSORFERRY_BASE_LOG_H_
#define TENSORFERRY_BASE_LOG_H_

#include <functional>
#include <string_view>

namespace tensorferry {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

using LogSink = std::function<void(LogLevel, std::string_view)>;

inline void Log(const LogSink& sink, LogLevel level, std::string_view line) {
  if (sink) sink(level, line);
}

}  // namespace tensorferry

#endif  // TENSORFERRY_BASE_LOG_H_
