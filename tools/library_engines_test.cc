#include "tools/library_engines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tensorferry/base/error.h"

namespace tensorferry::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

const absl::Status kNoUcx = MakeError(Reason::kLaneOff, "ucx: no module");
const absl::Status kNoNixl = MakeError(Reason::kNoMemory, "nixl: no agent");

// What is said on standard error.
struct Said {
  LogSink sink() {
    return [this](LogLevel level, std::string_view line) {
      EXPECT_GE(level, LogLevel::kWarning) << line;
      lines.emplace_back(line);
    };
  }
  std::vector<std::string> lines = {};
};

TEST(Unavailable, WhereOthersAreLeftEachIsALine) {
  Said said;
  Unavailable unavailable(said.sink());
  EXPECT_TRUE(unavailable.Settle(/*none_left=*/false).ok());
  unavailable.Add("ucx", kNoUcx);
  unavailable.Add("nixl", kNoNixl);
  EXPECT_TRUE(unavailable.Settle(/*none_left=*/false).ok());
  EXPECT_THAT(said.lines, ElementsAre("ucx: no module (lane_off)", "nixl: no agent (no_memory)"));
  EXPECT_THAT(unavailable.reasons(),
              ElementsAre(Pair("nixl", "nixl: no agent"), Pair("ucx", "ucx: no module")));
}

TEST(Unavailable, WhereNoneIsLeftTheLastIsTheErrorAndNoLine) {
  Said said;
  Unavailable unavailable(said.sink());
  unavailable.Add("ucx", kNoUcx);
  unavailable.Add("nixl", kNoNixl);
  EXPECT_EQ(unavailable.Settle(/*none_left=*/true), kNoNixl);
  EXPECT_THAT(said.lines, ElementsAre("ucx: no module (lane_off)"));
}

TEST(Unavailable, NothingThatIsMissingIsNoError) {
  EXPECT_TRUE(Unavailable({}).Settle(/*none_left=*/true).ok());
}

TEST(LibraryEngines, WhatIsNotThereIsUnavailableAtEitherEnd) {
  const LibraryOptions options{
      .transports = {"tcp", "nixl", "ucx"},
      .flags = {.nixl = {.lib = "/nowhere"}, .ucx = {.module = "/nowhere"}}};
  Unavailable worker({}), gateway({});
  EXPECT_TRUE(OpenPullLibraries(options, AllowList::Loopback(), &worker).empty());
  EXPECT_THAT(worker.reasons(),
              ElementsAre(Pair("nixl", HasSubstr("/nowhere")), Pair("ucx", HasSubstr("/nowhere"))));
  // NIXL's is missed by the agent, when that starts.
  const std::vector<ExportLibrary> opened = OpenExportLibraries(options, "127.0.0.1:0", &gateway);
  ASSERT_EQ(opened.size(), 1u);
  EXPECT_EQ(opened[0].transport, "nixl");
  EXPECT_NE(opened[0].address.port(), 0);
  EXPECT_THAT(gateway.reasons(), ElementsAre(Pair("ucx", HasSubstr("/nowhere"))));
}

TEST(LibraryEngines, WhatIsNotAskedForIsNotOpened) {
  const LibraryOptions options{.transports = {"local", "tcp"}};
  Unavailable unavailable({});
  EXPECT_TRUE(OpenPullLibraries(options, AllowList::Loopback(), &unavailable).empty());
  EXPECT_TRUE(OpenExportLibraries(options, "127.0.0.1:0", &unavailable).empty());
  EXPECT_TRUE(unavailable.reasons().empty());
  EXPECT_TRUE(NeedsLibrary("nixl"));
  EXPECT_FALSE(NeedsLibrary("tcp"));
}

}  // namespace
}  // namespace tensorferry::tools
