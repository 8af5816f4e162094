#include "tools/doctor/engine_checks.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "tensorferry/base/contains.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/nixl/nixl_library.h"
#include "tools/settings.h"

namespace tensorferry::tools {
namespace {

namespace fs = std::filesystem;

#define TENSORFERRY_X(name, parameters) +1
constexpr int kNixlSymbols = 0 TENSORFERRY_NIXL_FUNCTIONS(TENSORFERRY_X);
#undef TENSORFERRY_X

// What stands between `before` and `after` in `name`; empty when they do not.
std::string Between(absl::string_view name, absl::string_view before, absl::string_view after) {
  if (!absl::ConsumePrefix(&name, before) || !absl::ConsumeSuffix(&name, after)) return "";
  return std::string(name);
}

Finding CheckNixlLibrary(const NixlFlags& flags) {
  Finding finding{.ways = WaysOf({"nixl"})};
  KeepUcxOffStandardOutput();
  const absl::StatusOr<std::shared_ptr<const engine::NixlLibrary>> library =
      engine::NixlLibrary::Open(NixlLibrarySettings(flags.lib));
  if (!library.ok()) {
    finding.evidence =
        flags.lib.empty() ? "looked for as docs/nixl.md says" : StrCat("looked for in ", flags.lib);
    return finding.Off(std::string(library.status().message()),
                       "pip install nixl-cu13, or name the folder of libnixl_capi.so by --nixl-lib "
                       "or TENSORFERRY_NIXL_LIB");
  }
  const NixlSurroundings around =
      LookAroundNixl((*library)->path(), EnvironmentVariable("NIXL_PLUGIN_DIR").value_or(""));
  finding.evidence = StrCat((*library)->path(), ", version ",
                            around.version.empty() ? "not known" : around.version, ", all ",
                            kNixlSymbols, " symbols, plugins ",
                            around.plugins.empty() ? "none" : absl::StrJoin(around.plugins, " "));
  if (Contains(around.plugins, "UCX")) return finding;
  return finding.Off("NIXL has no plugin UCX (libplugin_UCX.so), by which it reads",
                     "install NIXL with its plugins (pip install nixl-cu13), or name their folder "
                     "by NIXL_PLUGIN_DIR");
}

constexpr std::array kEngineChecks = std::to_array<EngineCheck>({
    {"nixl_library", "nixl", CheckNixlLibrary},
});

}  // namespace

std::span<const EngineCheck> EngineChecks() { return kEngineChecks; }

NixlSurroundings LookAroundNixl(const std::string& library, const std::string& plugin_dir) {
  NixlSurroundings out;
  std::error_code error;
  const fs::path folder = fs::path(library).parent_path();
  const fs::path plugins = plugin_dir.empty() ? folder / "plugins" : fs::path(plugin_dir);
  for (const auto& entry : fs::directory_iterator(plugins, error)) {
    const std::string plugin = Between(entry.path().filename().string(), "libplugin_", ".so");
    if (!plugin.empty()) out.plugins.push_back(plugin);
  }
  std::sort(out.plugins.begin(), out.plugins.end());
  // A wheel of name nixl_cu13 keeps its libraries in .nixl_cu13.mesonpy.libs.
  const std::string wheel = Between(folder.filename().string(), ".", ".mesonpy.libs");
  if (wheel.empty()) return out;
  for (const auto& entry : fs::directory_iterator(folder.parent_path(), error)) {
    const std::string version =
        Between(entry.path().filename().string(), wheel + "-", ".dist-info");
    if (!version.empty()) out.version = version;
  }
  return out;
}

}  // namespace tensorferry::tools
