#include "tools/doctor/engine_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "tensorferry/base/temp_dir_testing.h"

namespace tensorferry::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(LookAroundNixl, FindsVersionAndPluginsOfAWheel) {
  const TempDir dir;
  const std::string libraries = dir.path() + "/.nixl_cu13.mesonpy.libs";
  for (const char* folder : {"/.nixl_cu13.mesonpy.libs/plugins", "/nixl_cu13-1.5.1.dist-info",
                             "/nixl_cu12-1.3.0.dist-info"}) {
    std::filesystem::create_directories(dir.path() + folder);
  }
  for (const char* file : {"libplugin_UCX.so", "libplugin_POSIX.so", "README"}) {
    std::ofstream(libraries + "/plugins/" + file) << "\n";
  }
  const NixlSurroundings around = LookAroundNixl(libraries + "/libnixl_capi.so", "");
  EXPECT_EQ(around.version, "1.5.1");
  EXPECT_THAT(around.plugins, ElementsAre("POSIX", "UCX"));
  EXPECT_THAT(LookAroundNixl(libraries + "/libnixl_capi.so", dir.path()).plugins, IsEmpty());
}

TEST(LookAroundNixl, ElsewhereTheVersionIsNotKnown) {
  EXPECT_EQ(LookAroundNixl("/usr/lib/libnixl_capi.so", "/nowhere").version, "");
}

TEST(EngineChecks, ALibraryThatIsNotThereIsOff) {
  const auto examine = [](std::string_view transport) {
    const auto check = std::ranges::find(EngineChecks(), transport, &EngineCheck::transport);
    return check->examine({.nixl = {.lib = "/nowhere"}, .ucx = {.module = "/nowhere"}});
  };
  const Finding nixl = examine("nixl");
  EXPECT_EQ(nixl.verdict, Verdict::kOff);
  EXPECT_THAT(nixl.cause, HasSubstr("/nowhere holds no libnixl_capi.so"));
  EXPECT_THAT(nixl.fix, HasSubstr("pip install nixl"));
  const Finding ucx = examine("ucx");
  EXPECT_EQ(ucx.verdict, Verdict::kOff);
  EXPECT_THAT(ucx.cause, HasSubstr("there is no /nowhere"));
  EXPECT_THAT(ucx.fix, HasSubstr("libucx0"));
}

// Who adds an engine is reminded that the doctor looks for its library, too.
TEST(EngineChecks, ThereIsOneForEachLibrary) {
  ASSERT_EQ(EngineChecks().size(), LibraryEngines().size());
  for (const LibraryEngine& engine : LibraryEngines()) {
    EXPECT_EQ(std::ranges::count(EngineChecks(), engine.transport, &EngineCheck::transport), 1);
  }
}

}  // namespace
}  // namespace tensorferry::tools
