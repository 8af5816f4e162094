#include "tensorferry/engine/nixl/nixl_library.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <string_view>

#include "absl/strings/str_join.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry::engine {
namespace {

constexpr char kFile[] = "libnixl_capi.so";
constexpr std::string_view kInstall =
    "install NIXL 1.3 or newer (pip install nixl-cu13), or name the folder of libnixl_capi.so with "
    "--nixl-lib";

absl::Status Off(std::string_view what) {
  return MakeError(Reason::kLaneOff, StrCat("nixl: ", what, "; ", kInstall));
}

std::string Where(void* handle) {
  const link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return kFile;
  return map->l_name;
}

// NIXL's wheel brings gRPC, protobuf and abseil of its own, which must not bind to a program's
// other ones (two copies of protobuf's descriptors abort). Sanitizers refuse that flag; the
// programs that they check here have none of the three.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kOwnSymbolsFirst = 0;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr int kOwnSymbolsFirst = 0;
#else
constexpr int kOwnSymbolsFirst = RTLD_DEEPBIND;
#endif
#else
constexpr int kOwnSymbolsFirst = RTLD_DEEPBIND;
#endif

// Where the system has drivers for verbs, UCX loads the system's libnl-route beside the wheel's own.
// Both take the first rtnl_tc_register that they meet, so that one list has them all twice, and
// taking them off at the end of the process crashes. Loaded before and alone, the system's meets
// its own.
void KeepLibnlsApart() {
  if (::dlopen("libnl-route-3.so.200", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) == nullptr) {
    (void)::dlerror();  // not there: then there is nothing to keep apart
  }
}

absl::StatusOr<void*> Load(const NixlLibraryOptions& options) {
  KeepLibnlsApart();
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | kOwnSymbolsFirst;
  std::vector<std::string> candidates;
  if (options.dir.empty()) {
    candidates.emplace_back(kFile);  // by the loader's path
    for (const std::string& dir : options.search) candidates.push_back(dir + "/" + kFile);
  } else {
    candidates.push_back(options.dir + "/" + kFile);
  }
  for (const std::string& candidate : candidates) {
    const bool by_path = candidate.find('/') != std::string::npos;
    if (by_path && ::access(candidate.c_str(), F_OK) != 0) continue;
    if (void* handle = ::dlopen(candidate.c_str(), kFlags)) return handle;
    if (by_path) return Off(StrCat("cannot load ", candidate, " (", ::dlerror(), ")"));
  }
  if (!options.dir.empty()) return Off(StrCat(options.dir, " holds no ", kFile));
  return Off(StrCat(kFile, " is neither on the loader's path nor in a wheel",
                    options.search.empty()
                        ? std::string()
                        : StrCat(" (", absl::StrJoin(options.search, ", "), ")")));
}

}  // namespace

std::string NixlStatusText(NixlStatus status) {
  switch (status) {
    case kNixlOk:
      return "success";
    case kNixlInProgress:
      return "in progress";
    case kNixlInvalidParam:
      return "invalid parameter";
    case kNixlBackendError:
      return "backend error";
    case kNixlInvalidState:
      return "invalid state";
    case kNixlException:
      return "exception";
    case kNixlNotFound:
      return "not found";
    default:
      return StrCat("status ", status);
  }
}

absl::StatusOr<std::shared_ptr<const NixlLibrary>> NixlLibrary::Open(
    const NixlLibraryOptions& options) {
  absl::StatusOr<void*> handle = Load(options);
  if (!handle.ok()) return handle.status();
  std::shared_ptr<NixlLibrary> library(new NixlLibrary);
  library->path_ = Where(*handle);
#define TENSORFERRY_X(name, parameters)                                                       \
  library->api_.name =                                                                        \
      reinterpret_cast<NixlStatus(*) parameters>(::dlsym(*handle, "nixl_capi_" #name));       \
  if (library->api_.name == nullptr) {                                                        \
    return Off(StrCat(library->path_, " is too old or not NIXL: it lacks nixl_capi_" #name)); \
  }
  TENSORFERRY_NIXL_FUNCTIONS(TENSORFERRY_X)
#undef TENSORFERRY_X
  return library;
}

}  // namespace tensorferry::engine
