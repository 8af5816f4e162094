#include "tensorferry/base/host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tensorferry/base/text.h"

namespace tensorferry {
namespace {

TEST(Host, BootIdTextParsesBack) {
  const std::string text = "01234567-89ab-cdef-0123-456789abcdef";
  const BootId id = ParseBootId(text);
  EXPECT_EQ(id[0], 0x01);
  EXPECT_EQ(id[15], 0xef);
  EXPECT_EQ(BootIdText(id), text);
}

TEST(Host, WhatIsNoBootIdIsUnknown) {
  for (const char* text :
       {"", "01234567-89ab-cdef-0123-456789abcde", "01234567-89ab-cdef-0123+456789abcdef",
        "g1234567-89ab-cdef-0123-456789abcdef"}) {
    EXPECT_EQ(ParseBootId(text), BootId{}) << text;
  }
}

TEST(Host, ThisHostIsKnown) {
  const HostIdentity host = ThisHost();
  EXPECT_NE(host.boot_id, BootId{});
  EXPECT_EQ(host.uid, ::geteuid());
  EXPECT_THAT(host.shm_namespace, testing::StartsWith(StrCat(BootIdText(host.boot_id), ":")));
  EXPECT_NE(host.pid_namespace, 0);
  EXPECT_NE(host.user_namespace, 0);
  EXPECT_EQ(host, ThisHost());
}

}  // namespace
}  // namespace tensorferry
