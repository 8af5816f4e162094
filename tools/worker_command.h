// `tensorferry worker`: takes tensors by every lane, says what it got, and proves it by their
// SHA-256.
#ifndef TENSORFERRY_TOOLS_WORKER_COMMAND_H_
#define TENSORFERRY_TOOLS_WORKER_COMMAND_H_

#include <CLI/App.hpp>

namespace tensorferry::tools {

void AddWorkerCommand(CLI::App& app, int* exit_code);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_WORKER_COMMAND_H_
