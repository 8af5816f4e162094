// `tensorferry export`: stages files on request and says how to fetch them, until its input ends.
#ifndef TENSORFERRY_TOOLS_EXPORT_COMMAND_H_
#define TENSORFERRY_TOOLS_EXPORT_COMMAND_H_

#include <CLI/App.hpp>

namespace tensorferry::tools {

void AddExportCommand(CLI::App& app, int* exit_code);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_EXPORT_COMMAND_H_
