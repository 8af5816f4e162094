#include "tensorferry/engine/file/shm_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tensorferry/base/error.h"

namespace tensorferry::engine {
namespace {

using Kind = ShmName::Kind;

TEST(ShmNameTest, TellsWhoseAFileIs) {
  const std::pair<std::string_view, ShmName> cases[] = {
      {"smg-tokenspeed-7-1700000000000000000-0", {Kind::kStock, 7}},
      {"smg-tokenspeed-7-1700000000000000000-0-0123456789abcdef", {Kind::kOurs, 7}},
      {"smg-tokenspeed-1-0-18446744073709551615-ffffffffffffffff", {Kind::kOurs, 1}},
      {"smg-tokenspeed-7", {Kind::kStock, 7}},
      {"smg-tokenspeed-7-", {Kind::kStock, 7}},
      {"smg-tokenspeed-7-x", {Kind::kStock, 7}},
      {"smg-tokenspeed-7-1-0-0123456789ABCDEF", {Kind::kStock, 7}},
      {"smg-tokenspeed-7-1-0-0123456789abcde", {Kind::kStock, 7}},
      {"smg-tokenspeed-7-1-0-0123456789abcdef0", {Kind::kStock, 7}},
      {"smg-tokenspeed-7-1-0--123456789abcdef", {Kind::kStock, 7}},
      {"smg-tokenspeed-probe-7", {Kind::kProbe, 7}},
      {"smg-tokenspeed-probe-7x", {}},
      {"smg-tokenspeed-probe-", {}},
      {"smg-tokenspeed-7x", {}},
      {"smg-tokenspeed--7-1-0", {}},
      {"smg-tokenspeed-+7-1-0", {}},
      {"smg-tokenspeed- 7-1-0", {}},
      {"smg-tokenspeed-4294967296-1-0", {}},
      {"smg-tokenspeed-", {}},
      {"smg-tokenspee", {}},
      {"psm_12345678", {}},
      {"", {}},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(ParseShmName(text), expected) << text;
}

RC_GTEST_PROP(ShmNameProperty, WhatIsMadeIsReadAsOurs,
              (uint32_t pid, uint64_t ns, uint64_t counter, uint64_t random)) {
  const std::string name =
      MakeShmName({.pid = pid, .unix_ns = ns, .counter = counter, .random = random});
  RC_ASSERT(ParseShmName(name) == (ShmName{Kind::kOurs, pid}));
  RC_ASSERT(*CheckShmName(name) == name);
  // What a stock gateway would make of the same.
  RC_ASSERT(ParseShmName(name.substr(0, name.size() - 17)) == (ShmName{Kind::kStock, pid}));
}

RC_GTEST_PROP(ShmNameProperty, WhatPassesStaysInTheDirectory, (const std::string& tail)) {
  for (const std::string& name : {tail, "smg-tokenspeed-" + tail, "//smg-tokenspeed-" + tail}) {
    const auto checked = CheckShmName(name);
    if (!checked.ok()) {
      RC_ASSERT(ReasonOf(checked.status()) == Reason::kBadDescriptor);
      continue;
    }
    RC_ASSERT(checked->starts_with("smg-tokenspeed-"));
    RC_ASSERT(checked->find('/') == std::string::npos);
    RC_ASSERT(checked->find('\0') == std::string::npos);
    RC_ASSERT(name.ends_with(*checked));
  }
}

TEST(ShmNameTest, SlashesInFrontAreTakenOffAndNothingElse) {
  EXPECT_EQ(*CheckShmName("smg-tokenspeed-1-2-3"), "smg-tokenspeed-1-2-3");
  EXPECT_EQ(*CheckShmName("/smg-tokenspeed-1-2-3"), "smg-tokenspeed-1-2-3");
  EXPECT_EQ(*CheckShmName("////smg-tokenspeed-1-2-3"), "smg-tokenspeed-1-2-3");
  EXPECT_EQ(*CheckShmName("smg-tokenspeed-" + std::string(240, '1')),
            "smg-tokenspeed-" + std::string(240, '1'));
  const std::string refused[] = {
      "",
      "/",
      "///",
      ".",
      "..",
      "/..",
      "../dev/shm/smg-tokenspeed-1-2-3",
      "smg-tokenspeed-1-2-3/",
      "smg-tokenspeed-1/../x",
      std::string("smg-tokenspeed-1\0-2", 19),
      "x-smg-tokenspeed-1-2-3",
      "SMG-tokenspeed-1-2-3",
      "sem.other",
      "smg-tokenspeed-" + std::string(241, '1'),
  };
  for (const std::string& name : refused) {
    EXPECT_EQ(ReasonOf(CheckShmName(name).status()), Reason::kBadDescriptor) << name;
  }
}

}  // namespace
}  // namespace tensorferry::engine
