#include "tensorferry/engine/nixl/nixl_library.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tensorferry/base/error.h"
#include "tensorferry/base/temp_dir_testing.h"
#include "tensorferry/engine/nixl/nixl_testing.h"

namespace tensorferry::engine {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string Refusal(const NixlLibraryOptions& options) {
  const auto library = NixlLibrary::Open(options);
  EXPECT_EQ(ReasonOf(library.status()), Reason::kLaneOff);
  return std::string(library.status().message());
}

MATCHER(IsOneLine, "") { return arg.find('\n') == std::string::npos; }
auto SaysWhatToInstall() {
  return AllOf(HasSubstr("pip install nixl"), HasSubstr("--nixl-lib"), IsOneLine());
}

TEST(NixlLibraryTest, AMissingOneSaysWhereItWasLookedFor) {
  const TempDir dir;
  EXPECT_THAT(Refusal({.dir = dir.path()}),
              AllOf(HasSubstr(dir.path() + " holds no libnixl_capi.so"), SaysWhatToInstall()));
  if (::dlopen("libnixl_capi.so", RTLD_LAZY | RTLD_NOLOAD) != nullptr) {
    GTEST_SKIP() << "another test has loaded it into this process";
  }
  EXPECT_THAT(Refusal({.search = {"/nowhere/a", "/nowhere/b"}}),
              AllOf(HasSubstr("/nowhere/a, /nowhere/b"), SaysWhatToInstall()));
}

TEST(NixlLibraryTest, WhatIsNoLibraryIsNotLoaded) {
  const TempDir dir;
  dir.Write("libnixl_capi.so", "not an ELF file");
  EXPECT_THAT(Refusal({.dir = dir.path()}), AllOf(HasSubstr("cannot load"), SaysWhatToInstall()));
}

TEST(NixlLibraryTest, OneThatLacksASymbolIsTooOld) {
  // Some library that has none of them.
  const TempDir dir;
  std::filesystem::copy_file("/lib/x86_64-linux-gnu/libm.so.6", dir / "libnixl_capi.so");
  EXPECT_THAT(Refusal({.dir = dir.path()}),
              AllOf(HasSubstr("too old or not NIXL"),
                    HasSubstr("nixl_capi_create_configured_agent"), SaysWhatToInstall()));
}

TEST(WithNixlLibrary, IsFoundInADirAndInAWheel) {
  const std::string dir = NixlDirForTest();
  if (dir.empty()) GTEST_SKIP() << kNoNixl;
  const auto by_dir = NixlLibrary::Open({.dir = dir});
  ASSERT_TRUE(by_dir.ok()) << by_dir.status();
  EXPECT_THAT((*by_dir)->path(), HasSubstr("libnixl_capi.so"));
  const auto by_search = NixlLibrary::Open({.search = {"/nowhere", dir}});
  ASSERT_TRUE(by_search.ok()) << by_search.status();
  EXPECT_EQ((*by_search)->path(), (*by_dir)->path());
}

}  // namespace
}  // namespace tensorferry::engine
