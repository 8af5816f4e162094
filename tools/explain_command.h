// `tensorferry explain`: every setting with where it came from, and which lane a tensor takes with
// them, and why no other.
#ifndef TENSORFERRY_TOOLS_EXPLAIN_COMMAND_H_
#define TENSORFERRY_TOOLS_EXPLAIN_COMMAND_H_

#include <CLI/App.hpp>

namespace tensorferry::tools {

void AddExplainCommand(CLI::App& app, int* exit_code);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_EXPLAIN_COMMAND_H_
