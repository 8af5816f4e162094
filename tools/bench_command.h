// `tensorferry bench`: how fast tensors go from one process to another here, and what that costs.
#ifndef TENSORFERRY_TOOLS_BENCH_COMMAND_H_
#define TENSORFERRY_TOOLS_BENCH_COMMAND_H_

namespace CLI {
class App;
}

namespace tensorferry::tools {

void AddBenchCommand(CLI::App& app, int* exit_code);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_BENCH_COMMAND_H_
