#include "tensorferry/policy/setting_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tensorferry/base/error.h"

namespace tensorferry {
namespace {

template <class Value>
void ExpectRefused(const absl::StatusOr<Value>& value, std::string_view text) {
  ASSERT_FALSE(value.ok()) << text;
  EXPECT_EQ(ReasonOf(value.status()), Reason::kBadOption) << text;
}

TEST(ParseUnsigned, TakesDigitsOnly) {
  EXPECT_EQ(*ParseUnsigned("0"), 0u);
  EXPECT_EQ(*ParseUnsigned("0064"), 64u);
  EXPECT_EQ(*ParseUnsigned("18446744073709551615"), UINT64_MAX);
  // What Python takes and Rust does not, the other way round, and what neither does.
  for (const std::string_view text :
       {"33_554_432", " 64 ", "64\n", "120.5", "+64", "-1", "", " ", "0x40", "64k", "1e3", "٣",
        "18446744073709551616", "99999999999999999999999"}) {
    ExpectRefused(ParseUnsigned(text), text);
  }
}

RC_GTEST_PROP(ParseUnsigned, EveryNumberParsesBack, (uint64_t value)) {
  RC_ASSERT(*ParseUnsigned(std::to_string(value)) == value);
}

RC_GTEST_PROP(ParseUnsigned, WhatIsTakenIsDigits, (const std::string& text)) {
  const auto value = ParseUnsigned(text);
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  RC_ASSERT(!value.ok() || digits);
}

TEST(ParseSwitch, TakesTheWordsOfThePublishedVersion) {
  for (const std::string_view text : {"1", "true", "yes", "on", "TRUE", " Yes\n", "On"}) {
    EXPECT_TRUE(*ParseSwitch(text)) << text;
  }
  for (const std::string_view text : {"0", "false", "no", "off", "FALSE", " No", "Off\t"}) {
    EXPECT_FALSE(*ParseSwitch(text)) << text;
  }
  for (const std::string_view text : {"", "2", "y", "enable", "truee", "o n"}) {
    ExpectRefused(ParseSwitch(text), text);
  }
}

TEST(ParseSendMetadata, IsAutoOrASwitch) {
  EXPECT_EQ(*ParseSendMetadata("auto"), SendMetadata::kAuto);
  EXPECT_EQ(*ParseSendMetadata("1"), SendMetadata::kOn);
  EXPECT_EQ(*ParseSendMetadata("false"), SendMetadata::kOff);
  ExpectRefused(ParseSendMetadata("maybe"), "maybe");
  for (const SendMetadata v : {SendMetadata::kAuto, SendMetadata::kOn, SendMetadata::kOff}) {
    EXPECT_EQ(*ParseSendMetadata(SendMetadataName(v)), v);
  }
}

TEST(ParseEncoderDtype, TakesEverySpellingOfThree) {
  for (const std::string_view text : {"float32", "fp32", "f32", " F32 "}) {
    EXPECT_EQ(*ParseEncoderDtype(text), Dtype::kFloat32) << text;
  }
  for (const std::string_view text : {"bfloat16", "bf16"}) {
    EXPECT_EQ(*ParseEncoderDtype(text), Dtype::kBfloat16) << text;
  }
  for (const std::string_view text : {"float16", "fp16", "f16", "half"}) {
    EXPECT_EQ(*ParseEncoderDtype(text), Dtype::kFloat16) << text;
  }
  for (const std::string_view text : {"", "uint8", "float64", "float", "bf-16"}) {
    ExpectRefused(ParseEncoderDtype(text), text);
  }
}

TEST(ParseListenIp, IsNumericAndDialable) {
  EXPECT_EQ(*ParseListenIp(" 10.0.0.5 \n"), "10.0.0.5");
  EXPECT_EQ(*ParseListenIp("FD00::1"), "fd00::1");
  EXPECT_EQ(*ParseListenIp(" "), "");
  for (const std::string_view text :
       {"gateway.example", "10.0.0.5:18515", "0.0.0.0", "::", "224.0.0.1", "fe80::1", "10.0.0"}) {
    ExpectRefused(ParseListenIp(text), text);
  }
}

TEST(Capped, StaysAtTheEndInsteadOfOverflowing) {
  EXPECT_EQ(AddCapped(1, 2), 3u);
  EXPECT_EQ(AddCapped(UINT64_MAX, 1), UINT64_MAX);
  EXPECT_EQ(MultiplyCapped(3, 4), 12u);
  EXPECT_EQ(MultiplyCapped(0, UINT64_MAX), 0u);
  EXPECT_EQ(MultiplyCapped(UINT64_MAX / 2 + 1, 2), UINT64_MAX);
  EXPECT_EQ(SecondsCapped(210), std::chrono::seconds(210));
  EXPECT_EQ(SecondsCapped(UINT64_MAX), Duration::max());
  EXPECT_EQ(SecondsCapped(9'223'372'036), std::chrono::seconds(9'223'372'036));
  EXPECT_EQ(SecondsCapped(9'223'372'037), Duration::max());
}

RC_GTEST_PROP(Capped, AgreesWithWiderArithmetic, (uint64_t a, uint64_t b)) {
  const auto cap = [](unsigned __int128 v) {
    return v > UINT64_MAX ? UINT64_MAX : static_cast<uint64_t>(v);
  };
  RC_ASSERT(AddCapped(a, b) == cap(static_cast<unsigned __int128>(a) + b));
  RC_ASSERT(MultiplyCapped(a, b) == cap(static_cast<unsigned __int128>(a) * b));
}

}  // namespace
}  // namespace tensorferry
