// The one symbol that libtensorferry_ucx.so shows.
#include <ucp/api/ucp.h>

#include <string>

#include "tensorferry/engine/ucx/module/ucx_export_engine.h"
#include "tensorferry/engine/ucx/module/ucx_pull_engine.h"
#include "tensorferry/engine/ucx/ucx_abi.h"

extern "C" __attribute__((visibility("default"))) const tensorferry::engine::UcxModuleFunctions*
tensorferry_ucx_module() {
  using namespace tensorferry::engine;
  static const std::string abi = UcxAbi();
  static const UcxModuleFunctions functions = {
      .abi = abi.c_str(),
      .ucx_version = ucp_get_version_string(),
      .create_export = &CreateUcxExportEngine,
      .create_pull = &CreateUcxPullEngine,
  };
  return &functions;
}
