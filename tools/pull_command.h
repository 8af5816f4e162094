// `tensorferry pull`: fetches what a descriptor names, and says its SHA-256.
#ifndef TENSORFERRY_TOOLS_PULL_COMMAND_H_
#define TENSORFERRY_TOOLS_PULL_COMMAND_H_

#include <CLI/App.hpp>

namespace tensorferry::tools {

void AddPullCommand(CLI::App& app, int* exit_code);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_PULL_COMMAND_H_
