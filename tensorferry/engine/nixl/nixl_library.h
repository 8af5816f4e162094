// NIXL's C library, opened at run time: nothing here is linked to NIXL or UCX, and nothing aborts
// when they are missing.
//
//   auto nixl = NixlLibrary::Open({.dir = "/opt/nixl/lib"});
//   if (!nixl.ok()) ...                    // one line: what is missing, and what to install
//   (*nixl)->api().get_notifs(agent, map, nullptr);
//
// Only what is called here is declared: names, values and the layout of the configuration are those
// of wrapper.h of NIXL 1.3 to 1.5 (crate nixl-sys). The library stays loaded for the life of the
// process, as UCX's threads and exit handlers want it, and is opened RTLD_LOCAL, so that another
// UCX in the process does not meet its symbols.
// Thread-safety: all of it from any thread.
#ifndef TENSORFERRY_ENGINE_NIXL_NIXL_LIBRARY_H_
#define TENSORFERRY_ENGINE_NIXL_NIXL_LIBRARY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/base/export.h"

namespace tensorferry::engine {

// nixl_capi_status_t
using NixlStatus = int;
inline constexpr NixlStatus kNixlOk = 0;
inline constexpr NixlStatus kNixlInProgress = 1;
inline constexpr NixlStatus kNixlInvalidParam = -1;
inline constexpr NixlStatus kNixlBackendError = -2;
inline constexpr NixlStatus kNixlInvalidState = -3;
inline constexpr NixlStatus kNixlException = -4;
inline constexpr NixlStatus kNixlNotFound = -6;

std::string NixlStatusText(NixlStatus status);

// nixl_capi_agent_config_s
struct NixlAgentConfig {
  bool progress_thread = false;
  bool listen_thread = false;
  int listen_port = 0;
  int thread_sync = 0;
  unsigned workers = 0;
  uint64_t progress_delay_us = 0;
  uint64_t listen_delay_us = 0;
  bool telemetry = false;
};
static_assert(sizeof(NixlAgentConfig) == 40);
inline constexpr int kNixlSyncStrict = 1;
inline constexpr int kNixlDram = 0;
inline constexpr int kNixlRead = 0;

// Opaque handles, distinct so that the compiler tells them apart.
using NixlAgentPtr = struct NixlAgentTag*;
using NixlParamsPtr = struct NixlParamsTag*;
using NixlMemListPtr = struct NixlMemListTag*;
using NixlBackendPtr = struct NixlBackendTag*;
using NixlOptArgsPtr = struct NixlOptArgsTag*;
using NixlXferListPtr = struct NixlXferListTag*;
using NixlRegListPtr = struct NixlRegListTag*;
using NixlRequestPtr = struct NixlRequestTag*;
using NixlNotifMapPtr = struct NixlNotifMapTag*;

// X(name without nixl_capi_, parameters)
#define TENSORFERRY_NIXL_FUNCTIONS(X)                                                       \
  X(create_configured_agent, (const char*, const NixlAgentConfig*, NixlAgentPtr*))          \
  X(destroy_agent, (NixlAgentPtr))                                                          \
  X(get_plugin_params, (NixlAgentPtr, const char*, NixlMemListPtr*, NixlParamsPtr*))        \
  X(destroy_mem_list, (NixlMemListPtr))                                                     \
  X(destroy_params, (NixlParamsPtr))                                                        \
  X(create_backend, (NixlAgentPtr, const char*, NixlParamsPtr, NixlBackendPtr*))            \
  X(destroy_backend, (NixlBackendPtr))                                                      \
  X(create_opt_args, (NixlOptArgsPtr*))                                                     \
  X(destroy_opt_args, (NixlOptArgsPtr))                                                     \
  X(opt_args_add_backend, (NixlOptArgsPtr, NixlBackendPtr))                                 \
  X(opt_args_set_notif_msg, (NixlOptArgsPtr, const void*, size_t))                          \
  X(opt_args_set_has_notif, (NixlOptArgsPtr, bool))                                         \
  X(opt_args_set_ip_addr, (NixlOptArgsPtr, const char*))                                    \
  X(opt_args_set_port, (NixlOptArgsPtr, uint16_t))                                          \
  X(create_reg_dlist, (int, NixlRegListPtr*))                                               \
  X(destroy_reg_dlist, (NixlRegListPtr))                                                    \
  X(reg_dlist_add_desc, (NixlRegListPtr, uintptr_t, size_t, uint64_t, const void*, size_t)) \
  X(register_mem, (NixlAgentPtr, NixlRegListPtr, NixlOptArgsPtr))                           \
  X(deregister_mem, (NixlAgentPtr, NixlRegListPtr, NixlOptArgsPtr))                         \
  X(get_local_md, (NixlAgentPtr, void**, size_t*))                                          \
  X(load_remote_md, (NixlAgentPtr, const void*, size_t, char**))                            \
  X(invalidate_remote_md, (NixlAgentPtr, const char*))                                      \
  X(fetch_remote_md, (NixlAgentPtr, const char*, NixlOptArgsPtr))                           \
  X(check_remote_md, (NixlAgentPtr, const char*, NixlXferListPtr))                          \
  X(create_xfer_dlist, (int, NixlXferListPtr*))                                             \
  X(destroy_xfer_dlist, (NixlXferListPtr))                                                  \
  X(xfer_dlist_add_desc, (NixlXferListPtr, uintptr_t, size_t, uint64_t))                    \
  X(create_xfer_req, (NixlAgentPtr, int, NixlXferListPtr, NixlXferListPtr, const char*,     \
                      NixlRequestPtr*, NixlOptArgsPtr))                                     \
  X(post_xfer_req, (NixlAgentPtr, NixlRequestPtr, NixlOptArgsPtr))                          \
  X(get_xfer_status, (NixlAgentPtr, NixlRequestPtr))                                        \
  X(release_xfer_req, (NixlAgentPtr, NixlRequestPtr))                                       \
  X(destroy_xfer_req, (NixlRequestPtr))                                                     \
  X(create_notif_map, (NixlNotifMapPtr*))                                                   \
  X(destroy_notif_map, (NixlNotifMapPtr))                                                   \
  X(get_notifs, (NixlAgentPtr, NixlNotifMapPtr, NixlOptArgsPtr))                            \
  X(notif_map_size, (NixlNotifMapPtr, size_t*))                                             \
  X(notif_map_get_agent_at, (NixlNotifMapPtr, size_t, const char**))                        \
  X(notif_map_get_notifs_size, (NixlNotifMapPtr, const char*, size_t*))                     \
  X(notif_map_get_notif, (NixlNotifMapPtr, const char*, size_t, const void**, size_t*))     \
  X(gen_notif, (NixlAgentPtr, const char*, const void*, size_t, NixlOptArgsPtr))

struct NixlApi {
#define TENSORFERRY_X(name, parameters) NixlStatus(*name) parameters = nullptr;
  TENSORFERRY_NIXL_FUNCTIONS(TENSORFERRY_X)
#undef TENSORFERRY_X
};

struct NixlLibraryOptions {
  // Folder of libnixl_capi.so. Set, it is the only place that is looked at; empty: the loader's
  // path, then `search`.
  std::string dir = {};
  // Folders where an installed wheel would have it, best first.
  std::vector<std::string> search = {};
};

class NixlLibrary {
 public:
  // kLaneOff, in one line: not found (and where it was looked for), not loadable (the loader's
  // words), or too old (the symbol that it lacks), each with what to install.
  TENSORFERRY_EXPORT static absl::StatusOr<std::shared_ptr<const NixlLibrary>> Open(
      const NixlLibraryOptions& options);

  const NixlApi& api() const { return api_; }
  // Where it was loaded from.
  const std::string& path() const { return path_; }

 private:
  NixlLibrary() = default;
  NixlApi api_;
  std::string path_;
};

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_NIXL_NIXL_LIBRARY_H_
