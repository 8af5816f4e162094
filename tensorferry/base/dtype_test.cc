#include "tensorferry/base/dtype.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensorferry/base/error.h"

namespace tensorferry {
namespace {

using ::testing::HasSubstr;

using Shape = std::vector<uint32_t>;

constexpr uint32_t kMax = 0xffffffff;

TEST(DtypeTest, NamesLeadThereAndBack) {
  const struct {
    Dtype dtype;
    std::string_view name;
    uint64_t bytes;
  } table[] = {{Dtype::kFloat32, "float32", 4}, {Dtype::kBfloat16, "bfloat16", 2},
               {Dtype::kFloat16, "float16", 2}, {Dtype::kUint8, "uint8", 1},
               {Dtype::kInt64, "int64", 8},     {Dtype::kUint32, "uint32", 4}};
  for (const auto& row : table) {
    EXPECT_EQ(DtypeName(row.dtype), row.name);
    EXPECT_EQ(ItemBytes(row.dtype), row.bytes) << row.name;
    ASSERT_TRUE(ParseDtype(row.name).ok()) << row.name;
    EXPECT_EQ(*ParseDtype(row.name), row.dtype);
  }
}

TEST(DtypeTest, RefusesEveryOtherNameAndListsTheAcceptedOnes) {
  for (const std::string_view name : {"", "Float32", "f32", "float32 ", "float64", "int32"}) {
    const auto parsed = ParseDtype(name);
    EXPECT_EQ(ReasonOf(parsed.status()), Reason::kUnknownDtype) << name;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("bfloat16")) << name;
  }
}

TEST(TensorBytesTest, MultipliesOut) {
  EXPECT_EQ(*TensorBytes(Shape{3, 448, 448}, Dtype::kBfloat16), 1204224u);
  EXPECT_EQ(*TensorBytes(Shape{}, Dtype::kInt64), 8u) << "a scalar is one element";
  EXPECT_EQ(*TensorBytes(Shape{0}, Dtype::kInt64), 0u);
  EXPECT_EQ(*TensorBytes(Shape{kMax, kMax}, Dtype::kUint8), uint64_t{kMax} * kMax);
}

TEST(TensorBytesTest, RefusesWhatDoesNotFit64Bits) {
  const auto bytes = TensorBytes(Shape{kMax, kMax}, Dtype::kFloat32);
  EXPECT_EQ(ReasonOf(bytes.status()), Reason::kBadShape);
  EXPECT_THAT(std::string(bytes.status().message()), HasSubstr("[4294967295,4294967295]"));
  EXPECT_EQ(*TensorBytes(Shape{1u << 31, 1u << 31, 2}, Dtype::kUint8), uint64_t{1} << 63);
  EXPECT_FALSE(TensorBytes(Shape{1u << 31, 1u << 31, 2}, Dtype::kFloat16).ok());
}

TEST(TensorBytesTest, ZeroAnywhereIsEmptyHoweverLargeTheRest) {
  EXPECT_EQ(*TensorBytes(Shape{kMax, kMax, kMax, 0}, Dtype::kFloat32), 0u);
  EXPECT_EQ(*TensorBytes(Shape{0, kMax, kMax, kMax}, Dtype::kFloat32), 0u);
}

TEST(CheckTensorBytesTest, NamesBothCounts) {
  EXPECT_TRUE(CheckTensorBytes(Shape{2, 3}, Dtype::kFloat32, 24).ok());
  const absl::Status status = CheckTensorBytes(Shape{2, 3}, Dtype::kFloat32, 23);
  EXPECT_EQ(ReasonOf(status), Reason::kSizeMismatch);
  EXPECT_EQ(status.message(), "23 bytes, but shape [2,3] of float32 takes 24");
  EXPECT_EQ(ReasonOf(CheckTensorBytes(Shape{kMax, kMax, kMax}, Dtype::kUint8, 1)),
            Reason::kBadShape);
}

TEST(ShapeTextTest, IsCompact) {
  EXPECT_EQ(ShapeText(Shape{}), "[]");
  EXPECT_EQ(ShapeText(Shape{3, 448, 448}), "[3,448,448]");
}

}  // namespace
}  // namespace tensorferry
