// `tensorferry send`: files to a worker, each tensor by the lane that was asked for or the best
// one.
#ifndef TENSORFERRY_TOOLS_SEND_COMMAND_H_
#define TENSORFERRY_TOOLS_SEND_COMMAND_H_

#include <CLI/App.hpp>

namespace tensorferry::tools {

void AddSendCommand(CLI::App& app, int* exit_code);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_SEND_COMMAND_H_
