#include "tools/input/safetensors.h"

#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensorferry/base/error.h"
#include "tools/input/input_testing.h"

namespace tensorferry::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(SafetensorsTest, EveryTensorInTheOrderOfItsBytes) {
  const std::string file =
      SafetensorsFile(R"({"__metadata__":{"format":"pt"},)"
                      R"("b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                      R"("a":{"dtype":"BF16","shape":[1,3],"data_offsets":[8,14]},)"
                      R"("none":{"dtype":"I64","shape":[0,5],"data_offsets":[14,14]},)"
                      R"("one":{"dtype":"U8","shape":[],"data_offsets":[14,15]}}   )",
                      "12345678abcdefx");
  EXPECT_TRUE(LooksLikeSafetensors(AsSpan(file)));
  const auto arrays = ParseSafetensors(AsSpan(file));
  ASSERT_TRUE(arrays.ok()) << arrays.status();
  ASSERT_EQ(arrays->size(), 4u);
  EXPECT_EQ((*arrays)[0].name, "b");
  EXPECT_EQ((*arrays)[0].source.element, Element::kFloat32);
  EXPECT_THAT((*arrays)[0].source.shape, ElementsAre(2));
  EXPECT_EQ((*arrays)[1].name, "a");
  EXPECT_EQ((*arrays)[1].source.element, Element::kBfloat16);
  EXPECT_EQ(static_cast<const void*>((*arrays)[1].source.bytes.data()),
            file.data() + file.size() - 7);
  EXPECT_EQ((*arrays)[2].name, "none");
  EXPECT_THAT((*arrays)[2].source.bytes, IsEmpty());
  EXPECT_EQ((*arrays)[3].name, "one");
  EXPECT_THAT((*arrays)[3].source.shape, IsEmpty());
}

struct BadCase {
  std::string name;
  std::string header;
  std::string data;
  Reason reason;
  std::string says;
};

void PrintTo(const BadCase& c, std::ostream* out) { *out << c.name; }

class SafetensorsBadTest : public testing::TestWithParam<BadCase> {};

TEST_P(SafetensorsBadTest, IsRefusedAndSaysWhy) {
  const auto arrays = ParseSafetensors(AsSpan(SafetensorsFile(GetParam().header, GetParam().data)));
  ASSERT_FALSE(arrays.ok());
  EXPECT_EQ(ReasonOf(arrays.status()), GetParam().reason) << arrays.status();
  EXPECT_THAT(std::string(arrays.status().message()), HasSubstr(GetParam().says));
}

std::vector<BadCase> BadCases() {
  const Reason bad = Reason::kBadInput, dtype = Reason::kUnknownDtype;
  return {
      {"not_json", "{nonsense", "", bad, "not a JSON object"},
      {"a_list", "[]", "", bad, "not a JSON object"},
      {"no_tensor", "{}", "", bad, "no tensor"},
      {"float8", R"({"w":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})", "x", dtype,
       "tensor \"w\": dtype \"F8_E4M3\""},
      {"lacks_dtype", R"({"w":{"shape":[1],"data_offsets":[0,1]}})", "x", bad, "lacks one of"},
      {"entry_is_number", R"({"w":1})", "", bad, "lacks one of"},
      {"negative_dim", R"({"w":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", "x", bad,
       "dimension -1"},
      {"huge_dim", R"({"w":{"dtype":"U8","shape":[4294967296],"data_offsets":[0,1]}})", "x", bad,
       "dimension 4294967296"},
      {"overflow",
       R"({"w":{"dtype":"F64","shape":[4294967295,4294967295,4],"data_offsets":[0,1]}})", "x", bad,
       "2^64"},
      {"wrong_size", R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,7]}})", "1234567", bad,
       "hold 7 bytes, but [2] of float32 takes 8"},
      {"beyond_the_end", R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "1234567",
       bad, "[0,8] are not within the 7 bytes"},
      {"backwards", R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[2,0]}})", "12", bad,
       "[2,0] are not within"},
      {"offset_beyond_64_bits",
       R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,99999999999999999999]}})", "12", bad,
       "are not within"},
      {"overlap",
       R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       "123", bad, "they overlap"},
      {"gap",
       R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
       "123", bad, "there is a gap"},
      {"rest", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "123", bad,
       "2 bytes of data belong to no tensor"},
      {"twice",
       R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
       R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       "1", bad, "names \"a\" twice"},
  };
}

INSTANTIATE_TEST_SUITE_P(, SafetensorsBadTest, testing::ValuesIn(BadCases()),
                         [](const auto& instance) { return instance.param.name; });

TEST(SafetensorsTest, HeaderLengthIsNotTrusted) {
  std::string file = SafetensorsFile("{}", "");
  file[0] = 100;
  EXPECT_THAT(std::string(ParseSafetensors(AsSpan(file)).status().message()),
              HasSubstr("truncated within its header"));
  file[7] = 1;
  EXPECT_FALSE(LooksLikeSafetensors(AsSpan(file)));
  EXPECT_THAT(std::string(ParseSafetensors(AsSpan(file)).status().message()),
              HasSubstr("over the format's 100000000"));
  EXPECT_FALSE(ParseSafetensors({}).ok());
  EXPECT_FALSE(LooksLikeSafetensors({}));
}

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST(SaveSafetensorsTest, WhatIsSavedIsReadBack) {
  const TempDir dir;
  const std::string path = dir / "saved.safetensors";
  constexpr std::pair<Dtype, Element> kPairs[] = {
      {Dtype::kFloat32, Element::kFloat32}, {Dtype::kBfloat16, Element::kBfloat16},
      {Dtype::kFloat16, Element::kFloat16}, {Dtype::kUint8, Element::kUint8},
      {Dtype::kInt64, Element::kInt64},     {Dtype::kUint32, Element::kUint32}};
  const std::vector<uint32_t> shape = {2, 1};
  for (const auto& [dtype, element] : kPairs) {
    const std::string bytes(2 * ItemBytes(dtype), 'v');
    const absl::Status status = SaveSafetensors(
        path,
        {.name = "encoder \"input\"", .shape = shape, .dtype = dtype, .bytes = AsSpan(bytes)});
    ASSERT_TRUE(status.ok()) << status;
    const std::string file = Content(path);
    EXPECT_EQ((file.size() - bytes.size()) % 8, 0u);
    const auto arrays = ParseSafetensors(AsSpan(file));
    ASSERT_TRUE(arrays.ok()) << arrays.status();
    ASSERT_EQ(arrays->size(), 1u);
    EXPECT_EQ((*arrays)[0].name, "encoder \"input\"");
    EXPECT_EQ((*arrays)[0].source.element, element);
    EXPECT_EQ((*arrays)[0].source.shape, shape);
    EXPECT_EQ(file.substr(file.size() - bytes.size()), bytes);
  }
}

TEST(SaveSafetensorsTest, ScalarsAndEmptyTensors) {
  const TempDir dir;
  const std::string path = dir / "saved.safetensors";
  ASSERT_TRUE(
      SaveSafetensors(path, {.name = "s", .dtype = Dtype::kUint8, .bytes = AsSpan("x")}).ok());
  EXPECT_THAT((*ParseSafetensors(AsSpan(Content(path))))[0].source.shape, IsEmpty());
  const std::vector<uint32_t> empty = {0, 3};
  ASSERT_TRUE(SaveSafetensors(path, {.name = "e", .shape = empty, .dtype = Dtype::kInt64}).ok());
  EXPECT_EQ((*ParseSafetensors(AsSpan(Content(path))))[0].source.shape, empty);
}

TEST(SaveSafetensorsTest, AFailureNamesThePathAndLeavesNothing) {
  const TempDir dir;
  EXPECT_THAT(std::string(SaveSafetensors(dir / "no/such", {.name = "x"}).message()),
              HasSubstr("no/such"));
  ASSERT_EQ(::mkdir((dir / "taken").c_str(), 0700), 0);
  EXPECT_FALSE(SaveSafetensors(dir / "taken", {.name = "x"}).ok());
  EXPECT_EQ(Content(dir / "taken.partial"), "");
  EXPECT_NE(::access((dir / "taken.partial").c_str(), F_OK), 0);
}

}  // namespace
}  // namespace tensorferry::tools
