// The module that is not there, or is another's.
#include "tensorferry/engine/ucx/ucx_module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tensorferry/base/error.h"
#include "tensorferry/base/temp_dir_testing.h"
#include "tensorferry/engine/ucx/ucx_abi.h"
#include "tensorferry/engine/ucx/ucx_testing.h"

namespace tensorferry::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// One line, with what to do.
void ExpectOff(const UcxModuleOptions& options, const std::string& needle) {
  const auto module = UcxModule::Open(options);
  ASSERT_FALSE(module.ok());
  EXPECT_EQ(ReasonOf(module.status()), Reason::kLaneOff) << module.status();
  EXPECT_THAT(std::string(module.status().message()),
              AllOf(HasSubstr(needle), HasSubstr("libucx0"), HasSubstr("--ucx-module"),
                    Not(HasSubstr("\n"))));
}

TEST(UcxModuleTest, Absent) {
  const TempDir dir;
  ExpectOff({.path = dir.path()}, dir.path() + "/libtensorferry_ucx.so");
  ExpectOff({.path = dir.path() + "/other.so"}, dir.path() + "/other.so");
  ExpectOff({.search = {dir.path()}}, dir.path() + "/libtensorferry_ucx.so");
}

TEST(UcxModuleTest, NoLibrary) {
  const TempDir dir;
  std::ofstream(dir.path() + "/libtensorferry_ucx.so") << "not a library";
  ExpectOff({.path = dir.path()}, "cannot load");
}

TEST(UcxModuleTest, AnotherLibrary) {
  ExpectOff({.path = "/lib/x86_64-linux-gnu/libm.so.6"}, "is no module of Tensorferry");
}

// Its versions and sizes are ours.
TEST(UcxModuleTest, OfAnotherTree) {
  const std::string path = std::filesystem::read_symlink("/proc/self/exe").parent_path() /
                           "tensorferry_ucx_of_another_tree.so";
  ASSERT_TRUE(std::filesystem::exists(path)) << path;
  ExpectOff({.path = path}, "is of another build (" + UcxAbiOf("of another tree") +
                                ") than this program (" + UcxAbi() + ")");
}

TEST(UcxModuleTest, APlaceIsNamedOnce) {
  const auto module = UcxModule::Open({.search = {"/nowhere", "/nowhere"}});
  ASSERT_FALSE(module.ok());
  const std::string text(module.status().message());
  const std::string place = "/nowhere/libtensorferry_ucx.so";
  EXPECT_NE(text.find(place), std::string::npos) << text;
  EXPECT_EQ(text.find(place), text.rfind(place)) << text;
}

TEST(UcxModuleTest, IsFoundInAFolderAndByName) {
  const std::string path = UcxModulePathForTest();
  if (!std::filesystem::exists(path)) GTEST_SKIP() << kNoUcx;
  const std::string folder = std::filesystem::path(path).parent_path();
  for (const UcxModuleOptions& options :
       {UcxModuleOptions{.path = path}, UcxModuleOptions{.path = folder},
        UcxModuleOptions{.search = {"/nowhere", folder}}}) {
    const auto module = UcxModule::Open(options);
    ASSERT_TRUE(module.ok()) << module.status();
    EXPECT_EQ((*module)->path(), path);
    EXPECT_THAT((*module)->ucx_version(), HasSubstr("."));
  }
}

}  // namespace
}  // namespace tensorferry::engine
