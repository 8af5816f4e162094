#include "tools/settings.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/strings/str_split.h"

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

std::string Environment(std::string_view name) { return EnvironmentVariable(name).value_or(""); }

// The first folder of $PATH that has a python3, without its /bin.
std::string PythonPrefix() {
  for (const auto dir : absl::StrSplit(Environment("PATH"), ':')) {
    std::error_code error;
    const std::filesystem::path python = std::filesystem::path(std::string(dir)) / "python3";
    if (dir.empty() || !std::filesystem::exists(python, error)) continue;
    return python.parent_path().parent_path().string();
  }
  return "";
}

// What the wheel of NIXL calls the folder of its libraries.
bool IsWheelFolder(const std::string& name) {
  return name.starts_with(".nixl_cu") && name.ends_with(".mesonpy.libs");
}

void AddWheels(const std::string& prefix, std::vector<std::string>* found) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (prefix.empty()) return;
  for (const auto& python : fs::directory_iterator(prefix + "/lib", error)) {
    if (!python.path().filename().string().starts_with("python3")) continue;
    for (const char* packages : {"site-packages", "dist-packages"}) {
      std::error_code ignored;
      for (const auto& entry : fs::directory_iterator(python.path() / packages, ignored)) {
        const std::string path = entry.path().string();
        if (IsWheelFolder(entry.path().filename().string()) &&
            std::find(found->begin(), found->end(), path) == found->end()) {
          found->push_back(path);
        }
      }
    }
  }
}

}  // namespace

std::optional<std::string> EnvironmentVariable(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

engine::NixlLibraryOptions NixlLibrarySettings(const std::string& dir) {
  engine::NixlLibraryOptions options{.dir = dir.empty() ? Environment("TENSORFERRY_NIXL_LIB") : dir,
                                     .search = {}};
  if (!options.dir.empty()) return options;
  for (const std::string& prefix : {Environment("VIRTUAL_ENV"), PythonPrefix(),
                                    std::string("/usr/local"), std::string("/usr")}) {
    AddWheels(prefix, &options.search);
  }
  return options;
}

std::string NixlAgentProgram() {
  constexpr char kName[] = "tensorferry-nixl-agent";
  std::error_code error;
  const std::filesystem::path here =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  std::filesystem::path beside = here / kName;
  if (std::filesystem::exists(beside, error)) return beside.string();
  return (here.parent_path() / "libexec/tensorferry" / kName).string();
}

engine::UcxModuleOptions UcxModuleSettings(const std::string& path) {
  engine::UcxModuleOptions options{
      .path = path.empty() ? Environment("TENSORFERRY_UCX_MODULE") : path, .search = {}};
  std::error_code error;
  const std::filesystem::path here =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* libraries : {TENSORFERRY_LIBDIR, "lib"}) {
    options.search.push_back((here.parent_path() / libraries / "tensorferry").string());
  }
  return options;
}

// By that word: a file of any name, /dev/stderr too, UCX would empty.
void KeepUcxOffStandardOutput() { (void)::setenv("UCX_LOG_FILE", "stderr", /*overwrite=*/0); }

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
