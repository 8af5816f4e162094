// A module of engine/ucx that is right in everything but that its headers were others: whoever calls into it gets
// another function than it meant.
#include <cstdlib>

#include "tensorferry/engine/ucx/ucx_abi.h"

extern "C" __attribute__((visibility("default"))) const tensorferry::engine::UcxModuleFunctions*
tensorferry_ucx_module() {
  using namespace tensorferry::engine;
  static const std::string abi = UcxAbiOf("of another tree");
  static const UcxModuleFunctions functions = {
      .abi = abi.c_str(),
      .ucx_version = "",
      .create_export = [](const UcxExportOptions&)
          -> absl::StatusOr<std::unique_ptr<UcxExportEngine>> { std::abort(); },
      .create_pull = [](const UcxPullOptions&) -> absl::StatusOr<std::unique_ptr<PullEngine>> {
        std::abort();
      },
  };
  return &functions;
}
