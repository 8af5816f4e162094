// What crosses the border between the library and libtensorferry_ucx.so: one C symbol, and behind it
// factories of the same C++ interfaces that the other engines have. Both sides are compiled from one
// tree; what they must agree on is in one text, which is compared before anything else is touched.
//
//   const UcxModuleFunctions* module = tensorferry_ucx_module();
//   if (UcxAbi() == module->abi) module->create_pull(options);
//
// Thread-safety: the factories from any thread.
#ifndef TENSORFERRY_ENGINE_UCX_UCX_ABI_H_
#define TENSORFERRY_ENGINE_UCX_UCX_ABI_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tensorferry/engine/pull_engine.h"
#include "tensorferry/engine/ucx/ucx_options.h"

namespace tensorferry::engine {

inline constexpr char kUcxModuleFile[] = "libtensorferry_ucx.so";
inline constexpr char kUcxModuleSymbol[] = "tensorferry_ucx_module";

struct UcxModuleFunctions {
  const char* abi;          // UcxAbi() of the module; first in every version of this
  const char* ucx_version;  // of the UCX that the module has loaded
  absl::StatusOr<std::unique_ptr<UcxExportEngine>> (*create_export)(const UcxExportOptions&);
  absl::StatusOr<std::unique_ptr<PullEngine>> (*create_pull)(const UcxPullOptions&);
};

// Of this build: what was declared when it was compiled (a hash of this header and of all of ours
// that it includes, cmake/TensorferryInterface.cmake), and what the compiler made of it: the versions
// of Tensorferry, of Abseil and of the compiler's interface, and the sizes of what crosses.
std::string UcxAbi();
// The same of a build with other headers.
std::string UcxAbiOf(std::string_view headers);

}  // namespace tensorferry::engine

extern "C" const tensorferry::engine::UcxModuleFunctions* tensorferry_ucx_module();

#endif  // TENSORFERRY_ENGINE_UCX_UCX_ABI_H_
