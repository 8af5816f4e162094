// The verb `completion`: a script for bash (and zsh, by bashcompinit), made of the verbs and options
// that this very command has, so that it cannot fall behind.
//
//   AddCompletionCommand(app, &exit_code);     // last: it knows the verbs that were added before
//
// Ownership: `app` outlives the parsing.
#ifndef TENSORFERRY_TOOLS_COMPLETION_COMMAND_H_
#define TENSORFERRY_TOOLS_COMPLETION_COMMAND_H_

namespace CLI {
class App;
}  // namespace CLI

namespace tensorferry::tools {

void AddCompletionCommand(CLI::App& app, int* exit_code);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_COMPLETION_COMMAND_H_
