#include "tools/input/picture.h"

#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/input/input.h"
#include "tools/input/input_testing.h"
#include "tools/sha256.h"

namespace tensorferry::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(PictureTest, DtypesOfPictures) {
  EXPECT_TRUE(CheckPictureDtype(Dtype::kUint8).ok());
  EXPECT_THAT(std::string(CheckPictureDtype(Dtype::kInt64).message()), HasSubstr("int64"));
}

std::string Photograph(const std::string& name) {
  return std::string(TENSORFERRY_SOURCE_DIR) + "/tests/data/" + name;
}

std::string DigestOf(const Input& input) {
  const std::vector<uint8_t> bytes = Produced<uint8_t>(input);
  return Hex(Sha256(std::as_bytes(std::span(bytes))));
}

// The digests are of what Pillow and NumPy make of the same file.
TEST(PictureTest, APhotographIsTheSameTensorAsElsewhere) {
  const std::pair<Dtype, std::string> digests[] = {
      {Dtype::kUint8, "9d1263ba0e684c996ad8d59ebeeb479d2608e2d7bb09a217aafcb77f1c5f9533"},
      {Dtype::kBfloat16, "1f747bd3f9aefaf64a5a796514248afcbf4c5c5bb5cb083ef6ee8a3534d37189"},
      {Dtype::kFloat16, "921350c8434a8d7d9c17ca4f7dd2879978cf34e1642539530c6e565ec139fbc9"},
      {Dtype::kFloat32, "3e2f11e1e966d2f795c8b2727b56fb9f3ab5a78196c904f6b27c967b8bf89646"},
  };
  for (const auto& [dtype, digest] : digests) {
    const Input input = Only(OpenInputs(Photograph("astronaut.png"), {.dtype = dtype}));
    EXPECT_THAT(input.shape, ElementsAre(3, 512, 512));
    EXPECT_EQ(input.dtype, dtype);
    EXPECT_EQ(DigestOf(input), digest) << DtypeName(dtype);
  }
}

TEST(PictureTest, PicturesAreBfloat16ByDefault) {
  const Input input = Only(OpenInputs(Photograph("astronaut.png"), {}));
  EXPECT_EQ(input.dtype, Dtype::kBfloat16);
  EXPECT_EQ(input.nbytes, 2u * 3 * 512 * 512);
}

// Decoders of JPEG may differ in the last bit of a sample: so only the means are compared.
TEST(PictureTest, AJpegPhotographIsTheSamePictureAsElsewhere) {
  const Input input = Only(OpenInputs(Photograph("grace_hopper.jpg"), {.dtype = Dtype::kUint8}));
  ASSERT_THAT(input.shape, ElementsAre(3, 600, 512));
  constexpr size_t kPlane = 600 * 512;
  const std::vector<uint8_t> values = Produced<uint8_t>(input);
  constexpr double kMeans[] = {82.48, 72.43, 86.42};
  for (size_t c = 0; c < 3; ++c) {
    const auto plane = values.begin() + c * kPlane;
    EXPECT_NEAR(std::accumulate(plane, plane + kPlane, 0.0) / kPlane, kMeans[c], 0.5) << c;
  }
}

}  // namespace
}  // namespace tensorferry::tools
