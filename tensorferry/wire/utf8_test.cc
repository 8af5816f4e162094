#include "tensorferry/wire/utf8.h"

#include <cstdint>
#include <string>

#include "gtest/gtest.h"

namespace tensorferry::wire {
namespace {

// The encoding by its definition, of any number below 2^21, also of those that are no code points.
std::string Encode(uint32_t c, int bytes) {
  if (bytes == 1) return std::string(1, static_cast<char>(c));
  std::string out;
  for (int i = 0; i < bytes - 1; ++i, c >>= 6)
    out.insert(0, 1, static_cast<char>(0x80 | (c & 0x3f)));
  const uint32_t lead = (0xf00 >> bytes) & 0xff;
  return out.insert(0, 1, static_cast<char>(lead | c));
}

// Every number in every length that can hold it: accepted exactly as a code point in its shortest
// form.
TEST(Utf8Test, AcceptsJustTheShortestFormsOfCodePoints) {
  const uint32_t limit[] = {0, 1u << 7, 1u << 11, 1u << 16, 1u << 21};
  for (int bytes = 1; bytes <= 4; ++bytes) {
    for (uint32_t c = 0; c < limit[bytes]; ++c) {
      const bool shortest = c >= limit[bytes - 1];
      const bool surrogate = c >= 0xd800 && c <= 0xdfff;
      const bool valid = shortest && !surrogate && c <= 0x10ffff;
      ASSERT_EQ(IsUtf8(Encode(c, bytes)), valid) << std::hex << c << " in " << bytes << " bytes";
    }
  }
}

TEST(Utf8Test, RefusesWhatIsNoEncodingAtAll) {
  for (int lead = 0x80; lead <= 0xff; ++lead) {
    const std::string alone(1, static_cast<char>(lead));
    EXPECT_FALSE(IsUtf8(alone)) << lead;
    EXPECT_FALSE(IsUtf8(alone + "a")) << lead;
    EXPECT_FALSE(IsUtf8("a" + alone)) << lead;
  }
  for (const std::string text : {"\xe2\x82", "\xf0\x9f\x98",
                                 "\xe2\x82"
                                 "a",
                                 "\xf8\x88\x80\x80\x80", "\xfc\x84\x80\x80\x80\x80", "\xff\xfe"}) {
    EXPECT_FALSE(IsUtf8(text));
  }
}

TEST(Utf8Test, AcceptsMixturesAndNul) {
  EXPECT_TRUE(IsUtf8(""));
  EXPECT_TRUE(IsUtf8(std::string("10.0.0.7\0", 9)));
  EXPECT_TRUE(IsUtf8("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z"));
}

}  // namespace
}  // namespace tensorferry::wire
