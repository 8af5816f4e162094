// The command `tensorferry`. Each verb is a file of its own, X_command.cc.
#include <CLI/CLI.hpp>

#include "tools/bench_command.h"
#include "tools/completion_command.h"
#include "tools/doctor_command.h"
#include "tools/explain_command.h"
#include "tools/export_command.h"
#include "tools/inspect_command.h"
#include "tools/output.h"
#include "tools/pull_command.h"
#include "tools/send_command.h"
#include "tools/worker_command.h"

int main(int argc, char** argv) {
  using namespace tensorferry::tools;
  CLI::App app("Moves tensors out of band between an LLM gateway and its workers.", "tensorferry");
  app.set_version_flag("--version", "tensorferry " TENSORFERRY_VERSION);
  app.require_subcommand(1);
  app.footer("tensorferry VERB --help shows an example. Exit codes: 0 done, 1 failed, 2 usage.");
  int exit_code = kDone;
  AddWorkerCommand(app, &exit_code);
  AddSendCommand(app, &exit_code);
  AddDoctorCommand(app, &exit_code);
  AddExplainCommand(app, &exit_code);
  AddExportCommand(app, &exit_code);
  AddPullCommand(app, &exit_code);
  AddInspectCommand(app, &exit_code);
  AddBenchCommand(app, &exit_code);
  AddCompletionCommand(app, &exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kUsage;
  }
  return exit_code;
}
