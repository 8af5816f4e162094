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

Finding CheckNixlLibrary(const EngineFlags& engines) {
  const NixlFlags& flags = engines.nixl;
  Finding finding{.ways = WaysOf({"nixl"})};
  KeepUcxOffStandardOutput();
  const absl::StatusOr<std::shared_ptr<const engine::NixlLibrary>> library =
      engine::NixlLibrary::Open(NixlLibrarySettings(flags.lib));
  if (!library.ok()) {
    finding.evidence =
        flags.lib.empty() ? "looked for as docs/nixl.md says" : StrCat("looked for in ", flags.lib);
    return finding.Off(
        std::string(library.status().message()),
        "where a peer speaks NIXL: pip install nixl-cu13, or name the folder of "
        "libnixl_capi.so by --nixl-lib or TENSORFERRY_NIXL_LIB; elsewhere leave nixl "
        "out of --engine");
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

Finding CheckUcxLibrary(const EngineFlags& engines) {
  const UcxFlags& flags = engines.ucx;
  Finding finding{.ways = WaysOf({"ucx"})};
  const absl::StatusOr<std::shared_ptr<const engine::UcxModule>> module = OpenUcxModule(flags);
  if (!module.ok()) {
    finding.evidence = flags.module.empty() ? "looked for as docs/ucx.md says"
                                            : StrCat("looked for in ", flags.module);
    return finding.Off(std::string(module.status().message()),
                       "where both ends have RDMA devices: apt install libucx0, with the module "
                       "that belongs to this build (--ucx-module, TENSORFERRY_UCX_MODULE); "
                       "elsewhere leave ucx out of --engine, tcp is faster there");
  }
  // The loader has resolved every symbol, or would not have loaded it.
  finding.evidence = StrCat((*module)->path(), ", of this build, UCX ", (*module)->ucx_version(),
                            ", all symbols, told to use ", UcxTransports(UcxOptionsOf(flags)));
  return finding;
}

constexpr std::array kEngineChecks = std::to_array<EngineCheck>({
    {"ucx_library", "ucx", CheckUcxLibrary},
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
