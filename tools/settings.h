// What the command takes from its environment: the only place that reads it.
//
//   const LocalSocket socket(options.local_socket);      // empty: a private one
//   exporter_options.local_socket = socket.path();
//   NixlLibrary::Open(NixlLibrarySettings(options.nixl_lib));
//
// Thread-safety: none.
#ifndef TENSORFERRY_TOOLS_SETTINGS_H_
#define TENSORFERRY_TOOLS_SETTINGS_H_

#include <optional>
#include <string>
#include <string_view>

#include "tensorferry/engine/nixl/nixl_library.h"
#include "tensorferry/engine/ucx/ucx_module.h"

namespace tensorferry::tools {

// Where an exporter's unix socket goes. A private one lies in a directory of its own, of a random
// name that only this user may enter, under $XDG_RUNTIME_DIR or /tmp; it goes with this object.
class LocalSocket {
 public:
  explicit LocalSocket(const std::string& path_or_empty);
  ~LocalSocket();
  LocalSocket(const LocalSocket&) = delete;
  LocalSocket& operator=(const LocalSocket&) = delete;

  // Where no directory could be made, one that does not exist: listening there says so.
  const std::string& path() const { return path_; }

 private:
  std::string directory_;  // ours; empty when the path was given
  std::string path_;
};

// What ParseSettings looks names up with. None: not set.
std::optional<std::string> EnvironmentVariable(std::string_view name);

// Where NIXL is looked for: in `dir`, else in $TENSORFERRY_NIXL_LIB, else on the loader's path,
// else beside a wheel in $VIRTUAL_ENV, in the Python that is on the path, or in the system's.
engine::NixlLibraryOptions NixlLibrarySettings(const std::string& dir);
// tensorferry-nixl-agent: beside this command, or where it was installed to.
std::string NixlAgentProgram();
// Where the module of engine/ucx is looked for: at `path`, else at $TENSORFERRY_UCX_MODULE, else
// where it was built or installed with this command.
engine::UcxModuleOptions UcxModuleSettings(const std::string& path);
// UCX, which NIXL brings, logs to standard output, which is ours, unless its own setting says
// otherwise. Before NIXL is opened.
void KeepUcxOffStandardOutput();

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_SETTINGS_H_
