#include "tools/output.h"

#include <cstdio>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry::tools {
namespace {

// One call of fwrite per line: stdio locks a stream for a call.
void Write(FILE* stream, const std::string& line) {
  std::fwrite(line.data(), 1, line.size(), stream);
  std::fflush(stream);
}

}  // namespace

void PrintJson(const nlohmann::ordered_json& object) {
  Write(stdout, object.dump(-1, ' ', /*ensure_ascii=*/false,
                            nlohmann::ordered_json::error_handler_t::replace) +
                    "\n");
}

void PrintLine(std::string_view line) { Write(stdout, StrCat(line, "\n")); }

void PrintError(std::string_view verb, std::string_view text) {
  Write(stderr, StrCat("tensorferry ", verb, ": ", text, "\n"));
}

void PrintError(std::string_view verb, const absl::Status& status) {
  PrintError(verb, std::string_view(StrCat(status.message(), " (", ReasonNameOf(status), ")")));
}

void PrintErrorJson(const absl::Status& status) {
  PrintJson({{"error", std::string(status.message())},
             {"code", ReasonNameOf(status)},
             {"retryable", IsRetryable(status)}});
}

LogSink PrintLog(std::string_view verb) {
  return [verb = std::string(verb)](LogLevel level, std::string_view line) {
    if (level >= LogLevel::kWarning) PrintError(verb, line);
  };
}

int Fail(std::string_view verb, const absl::Status& status) {
  PrintError(verb, status);
  return kFailed;
}

std::string UsageOf(const absl::Status& status) { return std::string(status.message()); }

}  // namespace tensorferry::tools
