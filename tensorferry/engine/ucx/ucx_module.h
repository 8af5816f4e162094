// engine/ucx, opened at run time: nothing here is linked to UCX, and nothing aborts when it is
// missing.
//
//   auto ucx = UcxModule::Open({.path = "/opt/tensorferry/lib"});
//   if (!ucx.ok()) ...                    // one line: what is missing, and what to install
//   auto engine = (*ucx)->CreatePull({.allow = allow});
//
// The module stays loaded for the life of the process, as UCX's threads and exit handlers want it,
// and is opened RTLD_LOCAL, so that another UCX in the process (NIXL brings one) does not meet its
// symbols.
// Thread-safety: all of it from any thread.
#ifndef TENSORFERRY_ENGINE_UCX_UCX_MODULE_H_
#define TENSORFERRY_ENGINE_UCX_UCX_MODULE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/base/export.h"
#include "tensorferry/engine/pull_engine.h"
#include "tensorferry/engine/ucx/ucx_options.h"

namespace tensorferry::engine {

struct UcxModuleFunctions;

struct UcxModuleOptions {
  // libtensorferry_ucx.so, or the folder that holds it. Set, it is the only place that is looked at.
  std::string path = {};
  // Folders that may hold it, best first. After them, `tensorferry/` beside the library or the
  // program that this code is in.
  std::vector<std::string> search = {};
};

class UcxModule {
 public:
  // kLaneOff, in one line: not found (and where it was looked for), not loadable (the loader's
  // words), or of another build, each with what to do.
  TENSORFERRY_EXPORT static absl::StatusOr<std::shared_ptr<const UcxModule>> Open(
      const UcxModuleOptions& options);

  // kBadOption (what UCX would have ignored, and tcp on a network that is not trusted), kBadAddress,
  // kAddressInUse, kLaneOff when UCX finds no transport that it may use.
  TENSORFERRY_EXPORT absl::StatusOr<std::unique_ptr<UcxExportEngine>> CreateExport(
      const UcxExportOptions& options) const;
  TENSORFERRY_EXPORT absl::StatusOr<std::unique_ptr<PullEngine>> CreatePull(
      const UcxPullOptions& options) const;

  // Where it was loaded from, and UCX's version.
  const std::string& path() const { return path_; }
  TENSORFERRY_EXPORT std::string ucx_version() const;

 private:
  UcxModule(const UcxModuleFunctions* functions, std::string path)
      : functions_(functions), path_(std::move(path)) {}
  const UcxModuleFunctions* const functions_;
  const std::string path_;
};

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_UCX_UCX_MODULE_H_
