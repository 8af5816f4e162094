#include "tools/hex.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensorferry/base/error.h"

namespace tensorferry::tools {
namespace {

using testing::HasSubstr;

TEST(HexTest, BytesOfEitherCase) {
  EXPECT_EQ(*FromHex(""), "");
  EXPECT_EQ(*FromHex("00fFaB7e"), std::string("\0\xff\xab\x7e", 4));
}

TEST(HexTest, SaysWhatIsWrong) {
  EXPECT_EQ(ReasonOf(FromHex("0").status()), Reason::kBadOption);
  EXPECT_THAT(std::string(FromHex("123").status().message()), HasSubstr("3 hexadecimal digits"));
  EXPECT_THAT(std::string(FromHex("12g4").status().message()), HasSubstr("\"g\" at place 3"));
  EXPECT_THAT(std::string(FromHex("\n0").status().message()), HasSubstr("\\n"));
}

}  // namespace
}  // namespace tensorferry::tools
