#include "tools/doctor/engine_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

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
  const Finding finding = EngineChecks().front().examine({.lib = "/nowhere"});
  EXPECT_EQ(finding.verdict, Verdict::kOff);
  EXPECT_THAT(finding.cause, HasSubstr("/nowhere holds no libnixl_capi.so"));
  EXPECT_THAT(finding.fix, HasSubstr("pip install nixl"));
}

}  // namespace
}  // namespace tensorferry::tools
