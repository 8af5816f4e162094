#include "tensorferry/engine/ucx/ucx_module.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_join.h"
#include "tensorferry/base/contains.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/ucx/ucx_abi.h"

namespace tensorferry::engine {
namespace {

constexpr std::string_view kInstall =
    "install UCX (libucx0) and the Tensorferry that was built with it (libucx-dev), or name its "
    "folder with --ucx-module";

absl::Status Off(std::string_view what) {
  return MakeError(Reason::kLaneOff, StrCat("ucx: ", what, "; ", kInstall));
}

bool IsFolder(const std::string& path) {
  struct stat facts = {};
  return ::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

// The folder of the file that this function was loaded from.
std::string Here() {
  Dl_info info = {};
  if (::dladdr(reinterpret_cast<const void*>(&UcxModule::Open), &info) == 0 ||
      info.dli_fname == nullptr) {
    return "";
  }
  std::string file = info.dli_fname;
  char resolved[4096];
  // A program's own name is what it was called by.
  const ssize_t n = ::readlink("/proc/self/exe", resolved, sizeof(resolved));
  if (n > 0 && n < static_cast<ssize_t>(sizeof(resolved)) &&
      file.find(".so") == std::string::npos) {
    file.assign(resolved, static_cast<size_t>(n));
  }
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? "." : file.substr(0, slash);
}

std::vector<std::string> Candidates(const UcxModuleOptions& options) {
  if (!options.path.empty()) {
    return {IsFolder(options.path) ? StrCat(options.path, "/", kUcxModuleFile) : options.path};
  }
  std::vector<std::string> folders = options.search;
  if (const std::string here = Here(); !here.empty()) folders.push_back(here + "/tensorferry");
  std::vector<std::string> out;
  for (const std::string& folder : folders) {
    std::string path = StrCat(folder, "/", kUcxModuleFile);
    // What a program looks for may be beside it, too.
    if (!Contains(out, path)) out.push_back(std::move(path));
  }
  return out;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const UcxModule>> UcxModule::Open(const UcxModuleOptions& options) {
  const std::vector<std::string> candidates = Candidates(options);
  for (const std::string& path : candidates) {
    if (::access(path.c_str(), F_OK) != 0) continue;
    void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == nullptr) return Off(StrCat("cannot load ", path, " (", ::dlerror(), ")"));
    const auto entry =
        reinterpret_cast<decltype(&tensorferry_ucx_module)>(::dlsym(handle, kUcxModuleSymbol));
    if (entry == nullptr) return Off(StrCat(path, " is no module of Tensorferry"));
    const UcxModuleFunctions* const functions = entry();
    if (const std::string abi = UcxAbi(); abi != functions->abi) {
      return Off(StrCat(path, " is of another build (", std::string(functions->abi),
                        ") than this program (", abi, ")"));
    }
    return std::shared_ptr<const UcxModule>(new UcxModule(functions, path));
  }
  return Off(StrCat("there is no ", absl::StrJoin(candidates, ", and no ")));
}

absl::StatusOr<std::unique_ptr<UcxExportEngine>> UcxModule::CreateExport(
    const UcxExportOptions& options) const {
  return functions_->create_export(options);
}

absl::StatusOr<std::unique_ptr<PullEngine>> UcxModule::CreatePull(
    const UcxPullOptions& options) const {
  return functions_->create_pull(options);
}

std::string UcxModule::ucx_version() const { return functions_->ucx_version; }

}  // namespace tensorferry::engine
