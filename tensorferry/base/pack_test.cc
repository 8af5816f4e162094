#include "tensorferry/base/pack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <numeric>
#include <string>

#include "tensorferry/base/convert.h"
#include "tensorferry/base/error.h"

namespace tensorferry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <typename To>
std::vector<To> Packed(const StridedTensor& tensor, Dtype to) {
  std::vector<To> out(*TensorBytes(tensor.shape, to) / sizeof(To));
  const absl::Status s = Pack(tensor, to, std::as_writable_bytes(std::span(out)));
  EXPECT_TRUE(s.ok()) << s;
  return out;
}

std::vector<float> Numbers(size_t count) {
  std::vector<float> out(count);
  std::iota(out.begin(), out.end(), 0.0F);
  return out;
}

TEST(Pack, APictureOfPixelsBecomesOneOfPlanes) {
  const std::vector<float> rgb = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};  // 2 x 2 pixels
  const StridedTensor tensor{.data = rgb.data(), .shape = {3, 2, 2}, .strides = {1, 6, 3}};
  EXPECT_THAT(Packed<float>(tensor, Dtype::kFloat32),
              ElementsAre(1, 4, 7, 10, 2, 5, 8, 11, 3, 6, 9, 12));
  EXPECT_THAT(
      Packed<uint16_t>(tensor, Dtype::kBfloat16),
      testing::Each(testing::Truly([](uint16_t b) { return Float32FromBfloat16(b) >= 1; })));
}

TEST(Pack, StridesMayRepeatAndWalkBack) {
  const std::vector<float> in = {1, 2, 3, 4};
  EXPECT_THAT(
      Packed<float>({.data = in.data(), .shape = {2, 3}, .strides = {0, 1}}, Dtype::kFloat32),
      ElementsAre(1, 2, 3, 1, 2, 3));
  EXPECT_THAT(
      Packed<float>({.data = in.data() + 3, .shape = {4}, .strides = {-1}}, Dtype::kFloat32),
      ElementsAre(4, 3, 2, 1));
}

TEST(Pack, ScalarsAndEmptyTensorsArePackedToo) {
  const float one = 1.5F;
  EXPECT_THAT(Packed<float>({.data = &one, .shape = {}}, Dtype::kFloat32), ElementsAre(1.5F));
  EXPECT_THAT(Packed<float>({.data = nullptr, .shape = {3, 0}, .strides = {9, 9}}, Dtype::kFloat32),
              ElementsAre());
}

// Against the definition, element by element, whatever can be merged.
RC_GTEST_PROP(PackProperty, EveryElementIsWhereTheShapePutsIt, ()) {
  const auto rank = *rc::gen::inRange<size_t>(0, 5);
  StridedTensor tensor;
  int64_t low = 0, high = 0;
  for (size_t i = 0; i < rank; ++i) {
    const auto size = *rc::gen::inRange<uint32_t>(1, 6);
    // Often what a slice or a transposed tensor has.
    const auto stride = *rc::gen::element<int64_t>(-30, -6, -1, 0, 1, 2, 3, 5, 6, 25, 30);
    tensor.shape.push_back(size);
    tensor.strides.push_back(stride);
    (stride < 0 ? low : high) += stride * (size - 1);
  }
  const std::vector<float> memory = Numbers(static_cast<size_t>(high - low + 1));
  tensor.data = memory.data() - low;
  const std::vector<float> out = Packed<float>(tensor, Dtype::kFloat32);
  std::vector<uint32_t> at(rank);
  for (const float value : out) {
    int64_t offset = -low;
    for (size_t i = 0; i < rank; ++i) offset += at[i] * tensor.strides[i];
    RC_ASSERT(value == memory[static_cast<size_t>(offset)]);
    for (size_t i = rank; i-- > 0 && ++at[i] == tensor.shape[i];) at[i] = 0;
  }
  std::vector<int64_t> shape(tensor.shape.begin(), tensor.shape.end());
  std::vector<int64_t> strides;
  for (const int64_t stride : tensor.strides) strides.push_back(stride * 4);
  const StridedItems items{.data = static_cast<const std::byte*>(tensor.data),
                           .item_bytes = 4,
                           .shape = shape,
                           .strides = strides};
  std::vector<float> same(out.size());
  PackItems(items, std::as_writable_bytes(std::span(same)).data());
  RC_ASSERT(same == out);
  if (items.contiguous()) {
    RC_ASSERT(std::memcmp(tensor.data, out.data(), out.size() * sizeof(float)) == 0);
  }
}

TEST(PackItems, ElementsOfAnySizeAndAddress) {
  const std::string letters = "-abcdefghijklmnopqrstuvwx";
  const auto* data = reinterpret_cast<const std::byte*>(letters.data() + 1);  // aligned for nothing
  const auto packed = [&](uint64_t item_bytes, std::vector<int64_t> shape,
                          std::vector<int64_t> strides) {
    std::string out(24, '.');
    PackItems({.data = data, .item_bytes = item_bytes, .shape = shape, .strides = strides},
              reinterpret_cast<std::byte*>(out.data()));
    return out.substr(0, out.find('.'));
  };
  EXPECT_EQ(packed(1, {2, 3}, {1, 2}), "acebdf");
  EXPECT_EQ(packed(2, {2, 2}, {2, 4}), "abefcdgh");
  EXPECT_EQ(packed(4, {2}, {8}), "abcdijkl");
  EXPECT_EQ(packed(8, {2}, {16}), "abcdefghqrstuvwx");
  EXPECT_EQ(packed(3, {2, 2}, {3, 6}), "abcghidefjkl");
  EXPECT_EQ(packed(3, {2, 0}, {3, 6}), "");
  EXPECT_EQ(packed(2, {}, {}), "ab");
}

TEST(StridedItems, ContiguousIsWhatCanBeCopiedAtOnce) {
  const auto contiguous = [](std::vector<int64_t> shape, std::vector<int64_t> strides) {
    return StridedItems{.data = nullptr, .item_bytes = 4, .shape = shape, .strides = strides}
        .contiguous();
  };
  EXPECT_TRUE(contiguous({}, {}));
  EXPECT_TRUE(contiguous({2, 3}, {12, 4}));
  EXPECT_TRUE(contiguous({1, 3}, {999, 4})) << "nobody walks along a dimension of one element";
  EXPECT_TRUE(contiguous({5, 0}, {1, 1})) << "nothing";
  EXPECT_FALSE(contiguous({3, 2, 2}, {4, 24, 12})) << "a picture of pixels, as planes";
  EXPECT_FALSE(contiguous({3}, {-4}));
  EXPECT_FALSE(contiguous({3}, {0}));
}

// Longer than the pieces that are gathered at a time.
TEST(Pack, RunsLongerThanAPieceAreConvertedWhole) {
  const std::vector<float> in = Numbers(20'000);
  const StridedTensor tensor{.data = in.data(), .shape = {2, 5000}, .strides = {1, 2}};
  const std::vector<uint16_t> out = Packed<uint16_t>(tensor, Dtype::kFloat16);
  for (size_t i = 0; i < out.size(); ++i) {
    ASSERT_EQ(out[i], Float16FromFloat32(in[(i / 5000) + 2 * (i % 5000)])) << i;
  }
}

TEST(Pack, FloatsConvertBothWaysAndEverythingStaysAsItIs) {
  const std::vector<float> in = {0.5F, -2.0F};
  const StridedTensor wide{.data = in.data(), .shape = {2}};
  for (const Dtype narrow : {Dtype::kBfloat16, Dtype::kFloat16}) {
    const std::vector<uint16_t> half = Packed<uint16_t>(wide, narrow);
    const StridedTensor back{.data = half.data(), .dtype = narrow, .shape = {2}};
    EXPECT_EQ(Packed<float>(back, Dtype::kFloat32), in);
    EXPECT_EQ(Packed<uint16_t>(back, narrow), half);
  }
  const std::vector<uint8_t> bytes = {1, 2, 3, 4, 5, 6, 7, 8};
  for (const Dtype dtype : {Dtype::kUint8, Dtype::kUint32, Dtype::kInt64}) {
    const auto count = static_cast<uint32_t>(bytes.size() / ItemBytes(dtype));
    std::vector<uint64_t> aligned(1);
    std::memcpy(aligned.data(), bytes.data(), bytes.size());
    EXPECT_EQ(Packed<uint8_t>({.data = aligned.data(), .dtype = dtype, .shape = {count}}, dtype),
              bytes);
  }
}

TEST(Pack, WhatIsWrongIsRefused) {
  const std::vector<float> in = Numbers(4);
  std::vector<std::byte> out(16);
  const StridedTensor tensor{.data = in.data(), .shape = {4}};
  EXPECT_EQ(ReasonOf(Pack(tensor, Dtype::kFloat32, std::span(out).first(15))),
            Reason::kSizeMismatch);
  const absl::Status pair = Pack(tensor, Dtype::kUint32, out);
  EXPECT_EQ(ReasonOf(pair), Reason::kUnknownDtype);
  EXPECT_THAT(pair.message(), HasSubstr("float32 is not converted to uint32"));
  const absl::Status strides =
      Pack({.data = in.data(), .shape = {2, 2}, .strides = {1}}, Dtype::kFloat32, out);
  EXPECT_EQ(ReasonOf(strides), Reason::kBadShape);
  EXPECT_THAT(strides.message(), HasSubstr("[2,2]"));
  const StridedTensor absurd{.data = in.data(), .shape = {UINT32_MAX, UINT32_MAX, 2, 2}};
  EXPECT_EQ(ReasonOf(Pack(absurd, Dtype::kFloat32, out)), Reason::kBadShape);
}

}  // namespace
}  // namespace tensorferry
