// What every verb of the command says, and how.
//
//   PrintJson({{"event", "ready"}, {"listen", address}});      // one line, seen at once by who
//   reads it if (!status.ok()) return Fail("pull", status);             // tensorferry pull: text
//   (reason_name) option->check([](const std::string& text) { return
//   UsageOf(ParseMode(text).status()); });
//
// Exit codes: 0 done, 1 failed, 2 usage. Results go to standard output, errors to standard error.
// Thread-safety: from any thread; lines are never mixed.
#ifndef TENSORFERRY_TOOLS_OUTPUT_H_
#define TENSORFERRY_TOOLS_OUTPUT_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "tensorferry/base/log.h"

namespace tensorferry::tools {

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;

// Keys in the order given; text that is not UTF-8 (a file's name may be none) is replaced.
void PrintJson(const nlohmann::ordered_json& object);
// A line for people.
void PrintLine(std::string_view line);

void PrintError(std::string_view verb, std::string_view text);
void PrintError(std::string_view verb, const absl::Status& status);
// The same as an object on standard output: {"error","code","retryable"}.
void PrintErrorJson(const absl::Status& status);
// Prints what the library warns of.
LogSink PrintLog(std::string_view verb);
// PrintError; gives kFailed.
int Fail(std::string_view verb, const absl::Status& status);

// What a check of an option returns: nothing for OK, else the message.
std::string UsageOf(const absl::Status& status);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_OUTPUT_H_
