#include "tools/library_engines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tensorferry/base/error.h"

namespace tensorferry::tools {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Key;
using testing::Pair;
using testing::UnorderedElementsAre;

// Asked for engines whose libraries are not there.
struct Missing {
  LibraryOptions options(bool alone) {
    return {.transports = {"tcp", "nixl", "ucx"},
            .alone = alone,
            .flags = {.nixl = {.lib = "/nowhere"}, .ucx = {.module = "/nowhere"}},
            .log = [this](LogLevel, std::string_view line) { said.emplace_back(line); }};
  }
  // One line for each, both of those that are left out and of the one that is returned.
  void Expect(const absl::Status& opened, const std::map<std::string, std::string>& unavailable) {
    ASSERT_TRUE(opened.ok()) << opened;
    EXPECT_THAT(said, ElementsAre(AllOf(HasSubstr("ucx: "), HasSubstr("(lane_off)")),
                                  AllOf(HasSubstr("nixl: "), HasSubstr("(lane_off)"))));
    EXPECT_THAT(unavailable, UnorderedElementsAre(Pair("ucx", HasSubstr("/nowhere")), Key("nixl")));
  }
  void ExpectAlone(const absl::Status& opened) {
    EXPECT_EQ(ReasonOf(opened), Reason::kLaneOff) << opened;
    EXPECT_THAT(std::string(opened.message()), HasSubstr("nixl: "));
    EXPECT_THAT(said, ElementsAre(HasSubstr("ucx: ")));
  }
  std::vector<std::string> said = {};
};

TEST(LibraryEngines, WhatCannotBeHadIsOneLineAndTheOthersServe) {
  Missing worker, gateway;
  const auto pull = OpenPullLibraries(worker.options(/*alone=*/false), AllowList::Loopback());
  worker.Expect(pull.status(), pull->unavailable);
  const auto exported = OpenExportLibraries(gateway.options(/*alone=*/false), "127.0.0.1:0");
  gateway.Expect(exported.status(), exported->unavailable);
}

TEST(LibraryEngines, WhereNothingElseServesItIsAnError) {
  Missing worker, gateway;
  worker.ExpectAlone(
      OpenPullLibraries(worker.options(/*alone=*/true), AllowList::Loopback()).status());
  gateway.ExpectAlone(OpenExportLibraries(gateway.options(/*alone=*/true), "127.0.0.1:0").status());
}

TEST(LibraryEngines, WhatIsNotAskedForIsNotOpened) {
  LibraryOptions options{.transports = {"local", "tcp"}, .alone = true};
  const auto pull = OpenPullLibraries(options, AllowList::Loopback());
  ASSERT_TRUE(pull.ok()) << pull.status();
  EXPECT_TRUE(pull->engines.empty() && pull->unavailable.empty());
  EXPECT_TRUE(NeedsLibrary("nixl"));
  EXPECT_FALSE(NeedsLibrary("tcp"));
}

}  // namespace
}  // namespace tensorferry::tools
