#include "tools/input/npy.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tools/input/input_testing.h"

namespace tensorferry::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string Header(std::string_view descr, std::string_view fortran, std::string_view shape) {
  return StrCat("{'descr': '", descr, "', 'fortran_order': ", fortran, ", 'shape': ", shape, ", }");
}

TEST(NpyTest, EveryVersion) {
  for (const int version : {1, 2, 3}) {
    const std::string file =
        NpyFile(Header("<f4", "False", "(2, 3)"), Bytes<float>({1, 2, 3, 4, 5, 6}), version);
    EXPECT_TRUE(LooksLikeNpy(AsSpan(file)));
    const auto source = ParseNpy(AsSpan(file));
    ASSERT_TRUE(source.ok()) << version << ": " << source.status();
    EXPECT_EQ(source->element, Element::kFloat32);
    EXPECT_THAT(source->shape, ElementsAre(2, 3));
    EXPECT_FALSE(source->fortran);
    EXPECT_FALSE(source->big_endian);
    EXPECT_EQ(source->bytes.size(), 24u);
    EXPECT_EQ(static_cast<const void*>(source->bytes.data()), file.data() + file.size() - 24);
  }
}

TEST(NpyTest, TellsOrders) {
  const std::string file = NpyFile(Header(">i2", "True", "(2,)"), Bytes<int16_t>({1, 2}));
  const auto source = ParseNpy(AsSpan(file));
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_TRUE(source->fortran);
  EXPECT_TRUE(source->big_endian);
  EXPECT_EQ(source->element, Element::kInt16);
}

TEST(NpyTest, ScalarsAndEmptyArrays) {
  const std::string scalar = NpyFile(Header("<i8", "False", "()"), Bytes<int64_t>({7}));
  EXPECT_THAT(ParseNpy(AsSpan(scalar))->shape, IsEmpty());
  const std::string empty = NpyFile(Header("<i8", "False", "(4294967295, 0, 9)"), "");
  EXPECT_THAT(ParseNpy(AsSpan(empty))->shape, ElementsAre(4294967295u, 0, 9));
}

TEST(NpyTest, AnyWayThatPythonMayWriteTheDict) {
  for (const std::string_view header :
       {"{\"shape\":(2,),\"descr\":\"|u1\",\"fortran_order\":False}",
        "{'fortran_order':False , 'shape' : ( 2L , ) , 'descr' : '|u1' , }     ",
        "{ 'descr' :'|u1', 'fortran_order' : False, 'shape': (2) }"}) {
    const auto source = ParseNpy(AsSpan(NpyFile(header, "ab")));
    ASSERT_TRUE(source.ok()) << header << ": " << source.status();
    EXPECT_THAT(source->shape, ElementsAre(2));
  }
}

struct BadCase {
  std::string name;
  std::string file;
  Reason reason;
  std::string says;
};

class NpyBadTest : public testing::TestWithParam<BadCase> {};

TEST_P(NpyBadTest, IsRefusedAndSaysWhy) {
  const auto source = ParseNpy(AsSpan(GetParam().file));
  ASSERT_FALSE(source.ok());
  EXPECT_EQ(ReasonOf(source.status()), GetParam().reason);
  EXPECT_THAT(std::string(source.status().message()), HasSubstr(GetParam().says));
}

std::vector<BadCase> BadCases() {
  const auto file = [](std::string_view descr, std::string_view shape, size_t bytes) {
    return NpyFile(Header(descr, "False", shape), std::string(bytes, 'x'));
  };
  const Reason bad = Reason::kBadInput, dtype = Reason::kUnknownDtype;
  std::string huge_header = NpyFile(std::string(70000, ' '), "", 2);
  return {
      {"magic_only", std::string("\x93NUMPY", 6), bad, "truncated within its header"},
      {"version_4", NpyFile("{}", "", 4), bad, "version 4"},
      {"version_0", NpyFile("{}", "", 0), bad, "version 0"},
      {"header_cut", file("<f4", "(3,)", 0).substr(0, 30), bad, "truncated within its header"},
      {"header_huge", huge_header, bad, "70001 bytes is over 65536"},
      {"data_short", file("<f4", "(3,)", 11), bad, "truncated: 11 of 12 bytes"},
      {"data_long", file("<f4", "(3,)", 13), bad, "1 bytes follow the array of 12"},
      {"complex", file("<c8", "(1,)", 8), dtype, "\"<c8\""},
      {"text", file("<U5", "(1,)", 20), dtype, "\"<U5\""},
      {"object", file("|O", "(1,)", 8), dtype, "\"|O\""},
      {"void", file("<V2", "(1,)", 2), dtype, "bfloat16 as .safetensors"},
      {"no_order", file("f4", "(1,)", 4), dtype, "\"f4\""},
      {"empty_descr", file("", "(1,)", 4), dtype, "\"\""},
      {"structured",
       NpyFile("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "1234"), dtype,
       "structured"},
      {"dim_too_large", file("<f4", "(4294967296,)", 4), bad, "4294967296"},
      {"dim_beyond_64_bits", file("<f4", "(99999999999999999999,)", 4), bad, "4294967295"},
      {"negative", file("<f4", "(-1,)", 4), bad, "not of numbers"},
      {"overflow", file("<f8", "(4294967295, 4294967295, 4294967295)", 4), bad, "2^64"},
      {"no_dict", NpyFile("[1]", ""), bad, "not a dict"},
      {"lacks_shape", NpyFile("{'descr': '<f4', 'fortran_order': False}", ""), bad, "lacks one"},
      {"twice", NpyFile("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False}", ""), bad,
       "\"descr\" twice"},
      {"other_key", NpyFile("{'x': 1}", ""), bad, "\"x\" twice, or it is none"},
      {"unfinished", NpyFile("{'descr': '<f4'", ""), bad, "does not end"},
      {"unfinished_string", NpyFile("{'descr", ""), bad, "dict of strings"},
      {"unfinished_tuple", NpyFile("{'shape': (1, ", ""), bad, "not of numbers"},
      {"fortran_of_1", NpyFile("{'fortran_order': 1}", ""), bad, "neither True nor False"},
      {"more", NpyFile(Header("<f4", "False", "(1,)") + "x", "1234"), bad, "goes on"},
  };
}

INSTANTIATE_TEST_SUITE_P(, NpyBadTest, testing::ValuesIn(BadCases()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace tensorferry::tools
