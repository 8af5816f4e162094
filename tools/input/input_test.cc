#include "tools/input/input.h"

#include <sys/stat.h>

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
using testing::StartsWith;

std::string Npy(std::string_view descr, std::string_view fortran, std::string_view shape,
                std::string_view data) {
  return NpyFile(
      StrCat("{'descr': '", descr, "', 'fortran_order': ", fortran, ", 'shape': ", shape, ", }"),
      data);
}

TEST(InputTest, ContentDecidesAndNotTheName) {
  const TempDir dir;
  const std::string path =
      dir.Write("photo.jpg", Npy("<f4", "False", "(2,)", Bytes<float>({1.5f, -2})));
  const Input input = Only(OpenInputs(path, {}));
  EXPECT_EQ(input.file, path);
  EXPECT_EQ(input.tensor, "");
  EXPECT_EQ(input.dtype, Dtype::kFloat32);
  EXPECT_THAT(input.shape, ElementsAre(2));
  EXPECT_THAT(Produced<float>(input), ElementsAre(1.5f, -2.0f));
  EXPECT_THAT(Produced<float>(input), ElementsAre(1.5f, -2.0f)) << "and again";
}

TEST(InputTest, FortranAndBigEndianNpyAreConvertedNeverWrong) {
  const TempDir dir;
  // [[1,2,3],[4,5,6]] column by column, big-endian.
  const std::string data("\0\1\0\4\0\2\0\5\0\3\0\6", 12);
  const Input input = Only(
      OpenInputs(dir.Write("a", Npy(">i2", "True", "(2, 3)", data)), {.dtype = Dtype::kFloat32}));
  EXPECT_THAT(input.shape, ElementsAre(2, 3));
  EXPECT_THAT(Produced<float>(input), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(InputTest, ScalarsAndEmptyArrays) {
  const TempDir dir;
  const Input scalar =
      Only(OpenInputs(dir.Write("s", Npy("<i8", "False", "()", Bytes<int64_t>({-5}))), {}));
  EXPECT_THAT(scalar.shape, IsEmpty());
  EXPECT_THAT(Produced<int64_t>(scalar), ElementsAre(-5));
  for (const char* fortran : {"False", "True"}) {
    const Input empty = Only(OpenInputs(dir.Write("e", Npy(">f4", fortran, "(3, 0, 2)", "")), {}));
    EXPECT_THAT(empty.shape, ElementsAre(3, 0, 2));
    EXPECT_EQ(empty.nbytes, 0u);
    EXPECT_THAT(Produced<float>(empty), IsEmpty());
  }
}

TEST(InputTest, EveryTensorOfASafetensorsFile) {
  const TempDir dir;
  const std::string path =
      dir.Write("w", SafetensorsFile(R"({"x":{"dtype":"F64","shape":[1],"data_offsets":[2,10]},)"
                                     R"("flag":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})",
                                     std::string("\1\0", 2) + Bytes<double>({2.5})));
  const auto inputs = OpenInputs(path, {.dtype = Dtype::kFloat32});
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  ASSERT_EQ(inputs->size(), 2u);
  EXPECT_EQ((*inputs)[0].tensor, "flag");
  EXPECT_THAT(Produced<float>((*inputs)[0]), ElementsAre(1, 0));
  EXPECT_EQ((*inputs)[1].tensor, "x");
  EXPECT_THAT(Produced<float>((*inputs)[1]), ElementsAre(2.5f));

  const absl::Status refused = OpenInputs(path, {}).status();
  EXPECT_EQ(ReasonOf(refused), Reason::kUnknownDtype);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("tensor \"flag\": dtype bool is none of"));
}

TEST(InputTest, BadFilesAreRefusedInOneLineThatNamesThem) {
  const TempDir dir;
  const std::pair<std::string, std::string> cases[] = {
      {"", "an empty file"},
      {"GIF89a", "a GIF picture; save it as PNG"},
      {"RIFF1234WEBP", "WebP"},
      {"PK\x03\x04....", ".npz"},
      {"hello world", "it starts with 68656c6c6f20776f"},
      {"\xff\xd8\xff", "a JPEG file that ends before its picture"},
      {"\x89PNG\r\n\x1a\n", "a damaged PNG picture (it ends early)"},
      {"\x93NUMPY", "truncated within its header"},
      {Npy("<f8", "False", "(1,)", "12345678"), "dtype float64 is none of"},
      {Npy("<f4", "False", "(2,)", "1234567"), "truncated: 7 of 8 bytes"},
  };
  for (const auto& [content, says] : cases) {
    const std::string path = dir.Write("file", content);
    const absl::Status status = OpenInputs(path, {}).status();
    ASSERT_FALSE(status.ok()) << says;
    EXPECT_TRUE(ReasonOf(status).has_value());
    const std::string message(status.message());
    EXPECT_THAT(message, StartsWith(path + ": "));
    EXPECT_THAT(message, HasSubstr(says));
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

TEST(InputTest, DamageFoundWhileDecodingNamesTheFile) {
  const TempDir dir;
  const std::string png = PngFile({.width = 2, .height = 2, .samples = std::vector<uint16_t>(12)});
  const std::string path = dir.Write("cut.png", png.substr(0, png.size() - 20));
  const Input input = Only(OpenInputs(path, {}));
  std::vector<std::byte> out(input.nbytes);
  const absl::Status status = input.produce(out);
  EXPECT_EQ(ReasonOf(status), Reason::kBadInput);
  EXPECT_THAT(std::string(status.message()), StartsWith(path + ": a damaged PNG picture"));
}

TEST(InputTest, MissingFilesDirectoriesAndPipes) {
  const TempDir dir;
  EXPECT_THAT(std::string(OpenInputs(dir / "none", {}).status().message()),
              HasSubstr("none: No such file or directory"));
  EXPECT_THAT(std::string(OpenInputs(dir / "", {}).status().message()),
              HasSubstr("is not a regular file"));
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(std::string(OpenInputs(dir / "pipe", {}).status().message()),
              HasSubstr("is not a regular file"));
}

TEST(InputTest, ArraysAndPicturesRefuseDtypesTheyDoNotBecome) {
  const TempDir dir;
  EXPECT_EQ(ReasonOf(OpenInputs(dir.Write("i", Npy("<i8", "False", "()", "12345678")),
                                {.dtype = Dtype::kBfloat16})
                         .status()),
            Reason::kUnknownDtype);
  EXPECT_EQ(ReasonOf(OpenInputs(std::string(TENSORFERRY_SOURCE_DIR) + "/tests/data/chelsea.png",
                                {.dtype = Dtype::kUint32})
                         .status()),
            Reason::kUnknownDtype);
}

TEST(InputTest, TheLimitOnPicturesIsLiftedByItsOption) {
  const std::string photo = std::string(TENSORFERRY_SOURCE_DIR) + "/tests/data/chelsea.png";
  EXPECT_EQ(ReasonOf(OpenInputs(photo, {.max_pixels = 1000}).status()), Reason::kTooLarge);
  EXPECT_TRUE(OpenInputs(photo, {.max_pixels = 451 * 300}).ok());
}

}  // namespace
}  // namespace tensorferry::tools
