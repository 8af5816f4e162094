#include "tools/input/elements.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensorferry/base/convert.h"
#include "tensorferry/base/error.h"
#include "tools/input/input_testing.h"

namespace tensorferry::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <typename Out, typename In>
std::vector<Out> Convert(const std::vector<In>& values, Element element, Dtype dtype) {
  std::vector<Out> out(values.size());
  const ArraySource source = {.bytes = std::as_bytes(std::span(values)),
                              .element = element,
                              .shape = {static_cast<uint32_t>(values.size())}};
  ProduceArray(source, dtype, std::as_writable_bytes(std::span(out)));
  return out;
}

TEST(ChooseDtypeTest, WhatTravelsAsItIs) {
  EXPECT_EQ(*ChooseDtype(Element::kFloat32, std::nullopt), Dtype::kFloat32);
  EXPECT_EQ(*ChooseDtype(Element::kBfloat16, std::nullopt), Dtype::kBfloat16);
  EXPECT_EQ(*ChooseDtype(Element::kFloat16, std::nullopt), Dtype::kFloat16);
  EXPECT_EQ(*ChooseDtype(Element::kUint8, std::nullopt), Dtype::kUint8);
  EXPECT_EQ(*ChooseDtype(Element::kInt64, std::nullopt), Dtype::kInt64);
  EXPECT_EQ(*ChooseDtype(Element::kUint32, std::nullopt), Dtype::kUint32);
}

TEST(ChooseDtypeTest, RefusesByNameWithTheWayOut) {
  const absl::Status wide = ChooseDtype(Element::kFloat64, std::nullopt).status();
  EXPECT_EQ(ReasonOf(wide), Reason::kUnknownDtype);
  EXPECT_THAT(std::string(wide.message()), HasSubstr("float64"));
  EXPECT_THAT(std::string(wide.message()), HasSubstr("--dtype can be float32, bfloat16, float16"));
  EXPECT_THAT(std::string(ChooseDtype(Element::kInt32, std::nullopt).status().message()),
              HasSubstr("save it as int64"));
  EXPECT_THAT(std::string(ChooseDtype(Element::kInt64, Dtype::kFloat32).status().message()),
              HasSubstr("int64 does not become float32 without loss; without --dtype it travels"));
}

// Exactly the table of the header.
TEST(ChooseDtypeTest, WhatBecomesWhat) {
  constexpr Element kAll[] = {
      Element::kBool,     Element::kInt8,    Element::kUint8,  Element::kInt16,  Element::kUint16,
      Element::kInt32,    Element::kUint32,  Element::kInt64,  Element::kUint64, Element::kFloat16,
      Element::kBfloat16, Element::kFloat32, Element::kFloat64};
  std::string table;
  for (const Element element : kAll) {
    table += ElementName(element);
    table += ":";
    for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBfloat16, Dtype::kFloat16, Dtype::kUint8,
                              Dtype::kInt64, Dtype::kUint32}) {
      table += ChooseDtype(element, dtype).ok() ? " y" : " -";
    }
    table += "\n";
  }
  EXPECT_EQ(table,
            "bool: y y y y - -\n"
            "int8: y y y - - -\n"
            "uint8: y y y y - -\n"
            "int16: y - - - - -\n"
            "uint16: y - - - - -\n"
            "int32: - - - - - -\n"
            "uint32: - - - - - y\n"
            "int64: - - - - y -\n"
            "uint64: - - - - - -\n"
            "float16: y y y - - -\n"
            "bfloat16: y y y - - -\n"
            "float32: y y y - - -\n"
            "float64: y y y - - -\n");
}

TEST(ProduceArrayTest, ConvertsValuesOfEveryKind) {
  EXPECT_THAT(Convert<float>(std::vector<int8_t>{-128, 0, 127}, Element::kInt8, Dtype::kFloat32),
              ElementsAre(-128, 0, 127));
  EXPECT_THAT(Convert<float>(std::vector<int16_t>{-32768, 32767}, Element::kInt16, Dtype::kFloat32),
              ElementsAre(-32768, 32767));
  EXPECT_THAT(Convert<float>(std::vector<uint16_t>{65535}, Element::kUint16, Dtype::kFloat32),
              ElementsAre(65535));
  EXPECT_THAT(Convert<float>(std::vector<uint8_t>{0, 1, 2}, Element::kBool, Dtype::kFloat32),
              ElementsAre(0, 1, 1));
  EXPECT_THAT(Convert<uint8_t>(std::vector<uint8_t>{0, 1, 2}, Element::kBool, Dtype::kUint8),
              ElementsAre(0, 1, 1));
  EXPECT_THAT(Convert<uint16_t>(std::vector<uint8_t>{0, 1, 255}, Element::kUint8, Dtype::kBfloat16),
              ElementsAre(0, 0x3f80, 0x437f));
  EXPECT_THAT(Convert<float>(std::vector<double>{0.1, 1e300}, Element::kFloat64, Dtype::kFloat32),
              ElementsAre(0.1f, INFINITY));
  EXPECT_THAT(
      Convert<uint16_t>(std::vector<double>{1.0, -1e300}, Element::kFloat64, Dtype::kFloat16),
      ElementsAre(0x3c00, 0xfc00));
  EXPECT_THAT(Convert<uint16_t>(std::vector<float>{0.1f}, Element::kFloat32, Dtype::kBfloat16),
              ElementsAre(0x3dcd));
  EXPECT_THAT(
      Convert<uint16_t>(std::vector<uint16_t>{0x3c00, 0x0001}, Element::kFloat16, Dtype::kBfloat16),
      ElementsAre(0x3f80, 0x3380));
  EXPECT_THAT(
      Convert<uint16_t>(std::vector<uint16_t>{0x3f80, 0x7f7f}, Element::kBfloat16, Dtype::kFloat16),
      ElementsAre(0x3c00, 0x7c00));
}

TEST(ProduceArrayTest, FloatsBecomeTheNearestEvenAcrossChunks) {
  std::vector<float> values(5000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i)) * 1e3f;
  const auto half = Convert<uint16_t>(values, Element::kFloat32, Dtype::kFloat16);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(half[i], Float16FromFloat32(values[i])) << i;
  }
}

TEST(ProduceArrayTest, SameDtypeKeepsEveryBit) {
  std::vector<uint16_t> patterns(65536);
  std::iota(patterns.begin(), patterns.end(), uint16_t{0});
  EXPECT_EQ(Convert<uint16_t>(patterns, Element::kBfloat16, Dtype::kBfloat16), patterns);
  EXPECT_EQ(Convert<uint16_t>(patterns, Element::kFloat16, Dtype::kFloat16), patterns);
  const std::vector<uint32_t> signalling = {0x7f800001, 0xff800001};
  EXPECT_EQ(Convert<uint32_t>(signalling, Element::kFloat32, Dtype::kFloat32), signalling);
}

// Element (i, j, k) of a Fortran-ordered array lies at i + I * (j + J * k).
TEST(ProduceArrayTest, FortranOrderBecomesRowMajor) {
  constexpr uint32_t kI = 7, kJ = 11, kK = 53;
  std::vector<uint32_t> column_major(kI * kJ * kK), row_major(column_major.size());
  uint32_t next = 0;
  for (uint32_t i = 0; i < kI; ++i) {
    for (uint32_t j = 0; j < kJ; ++j) {
      for (uint32_t k = 0; k < kK; ++k) column_major[i + kI * (j + kJ * k)] = next++;
    }
  }
  const ArraySource source = {.bytes = std::as_bytes(std::span(column_major)),
                              .element = Element::kUint32,
                              .shape = {kI, kJ, kK},
                              .fortran = true};
  ProduceArray(source, Dtype::kUint32, std::as_writable_bytes(std::span(row_major)));
  std::vector<uint32_t> expected(row_major.size());
  std::iota(expected.begin(), expected.end(), 0u);
  EXPECT_EQ(row_major, expected);
}

TEST(ProduceArrayTest, BigEndianIsSwappedWhateverTheSize) {
  const std::string two("\x3f\x80\x00\x01", 4);
  uint16_t half[2];
  ProduceArray(
      {.bytes = AsSpan(two), .element = Element::kFloat16, .shape = {2}, .big_endian = true},
      Dtype::kFloat16, std::as_writable_bytes(std::span(half)));
  EXPECT_THAT(half, ElementsAre(0x3f80, 0x0001));

  const std::string eight("\x3f\xf0\0\0\0\0\0\0\xc0\0\0\0\0\0\0\0", 16);
  float single[2];
  ProduceArray({.bytes = AsSpan(eight),
                .element = Element::kFloat64,
                .shape = {2, 1},
                .fortran = true,
                .big_endian = true},
               Dtype::kFloat32, std::as_writable_bytes(std::span(single)));
  EXPECT_THAT(single, ElementsAre(1.0f, -2.0f));
}

TEST(ProduceArrayTest, UnalignedSourceAndDestination) {
  const std::string file = "x" + Bytes<float>({1.5f, 2.5f, 3.5f});
  std::vector<std::byte> out(1 + 3 * sizeof(float));
  ProduceArray({.bytes = AsSpan(file).subspan(1), .element = Element::kFloat32, .shape = {3}},
               Dtype::kFloat32, std::span(out).subspan(1));
  EXPECT_EQ(std::memcmp(out.data() + 1, file.data() + 1, 3 * sizeof(float)), 0);
  std::vector<std::byte> half(1 + 3 * sizeof(uint16_t));
  ProduceArray({.bytes = AsSpan(file).subspan(1), .element = Element::kFloat32, .shape = {3}},
               Dtype::kBfloat16, std::span(half).subspan(1));
  uint16_t values[3];
  std::memcpy(values, half.data() + 1, sizeof(values));
  EXPECT_THAT(values, ElementsAre(0x3fc0, 0x4020, 0x4060));
}

TEST(ArrayBytesTest, CountsAndRefusesOverflow) {
  EXPECT_EQ(*ArrayBytes({}, Element::kFloat64), 8u);
  EXPECT_EQ(*ArrayBytes(std::vector<uint32_t>{4294967295u, 4294967295u, 0}, Element::kInt8), 0u);
  EXPECT_EQ(
      ReasonOf(
          ArrayBytes(std::vector<uint32_t>{4294967295u, 4294967295u, 2}, Element::kInt8).status()),
      Reason::kBadInput);
}

}  // namespace
}  // namespace tensorferry::tools
