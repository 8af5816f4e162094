// `tensorferry inspect`: what a descriptor says, or why it is none.
#ifndef TENSORFERRY_TOOLS_INSPECT_COMMAND_H_
#define TENSORFERRY_TOOLS_INSPECT_COMMAND_H_

#include <CLI/App.hpp>

namespace tensorferry::tools {

void AddInspectCommand(CLI::App& app, int* exit_code);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_INSPECT_COMMAND_H_
