#include "tools/settings.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace tensorferry::tools {
namespace {

// Leaves room for the rest of the path within a unix socket's 107 bytes.
constexpr size_t kMaxBase = 60;

std::string PrivateDirectory() {
  std::string bases[] = {"", "/tmp"};
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && runtime[0] == '/' && std::string(runtime).size() <= kMaxBase) {
    bases[0] = runtime;
  }
  std::string directory;
  for (const std::string& base : bases) {
    if (base.empty()) continue;
    directory = base + "/tensorferry-XXXXXX";
    // Made with mode 0700, under a name that was free.
    if (::mkdtemp(directory.data()) != nullptr) return directory;
  }
  return directory;
}

}  // namespace

LocalSocket::LocalSocket(const std::string& path_or_empty) : path_(path_or_empty) {
  if (!path_.empty()) {
    std::error_code error;
    const std::filesystem::path absolute = std::filesystem::absolute(path_, error);
    if (!error) path_ = absolute.string();
    return;
  }
  directory_ = PrivateDirectory();
  path_ = directory_ + "/gateway.sock";
}

LocalSocket::~LocalSocket() {
  if (directory_.empty()) return;
  (void)::unlink(path_.c_str());
  (void)::rmdir(directory_.c_str());
}

}  // namespace tensorferry::tools
