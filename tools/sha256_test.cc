#include "tools/sha256.h"

#include <string>
#include <string_view>

#include "gtest/gtest.h"

namespace tensorferry::tools {
namespace {

std::string DigestOf(std::string_view text) {
  return Hex(Sha256(std::as_bytes(std::span(text.data(), text.size()))));
}

TEST(Sha256Test, AnswersOfTheStandard) {
  EXPECT_EQ(DigestOf(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(DigestOf("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(DigestOf(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace
}  // namespace tensorferry::tools
