// `tensorferry doctor`: which lanes work here, and to a worker, and what to do about those that do
// not.
#ifndef TENSORFERRY_TOOLS_DOCTOR_COMMAND_H_
#define TENSORFERRY_TOOLS_DOCTOR_COMMAND_H_

#include <CLI/App.hpp>

namespace tensorferry::tools {

void AddDoctorCommand(CLI::App& app, int* exit_code);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_DOCTOR_COMMAND_H_
