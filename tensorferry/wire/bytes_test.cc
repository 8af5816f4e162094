#include "tensorferry/wire/bytes.h"

#include <array>

#include "gtest/gtest.h"
#include "rapidcheck/gtest.h"

namespace tensorferry::wire {
namespace {

using namespace std::string_view_literals;

TEST(WriterTest, IsLittleEndianAndPacked) {
  std::array<std::byte, 30> out;
  out.fill(std::byte{0xee});
  Writer to(out);
  to.U8(0x01);
  to.U16(0x0302);
  to.U32(0x07060504);
  to.U64(0x0f0e0d0c0b0a0908);
  to.I64(-2);
  to.Text("ab");
  to.Zeros(2);
  EXPECT_EQ(to.written(), 27u);
  EXPECT_EQ(AsText(out),
            "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"
            "\xfe\xff\xff\xff\xff\xff\xff\xff"
            "ab\0\0\xee\xee\xee"sv);
}

TEST(ReaderTest, ReadsWhatWasWritten) {
  Reader in(
      AsBytes("\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"
              "\xfe\xff\xff\xff\xff\xff\xff\xff\0\0rest"sv));
  EXPECT_EQ(in.U8(), 0x01);
  EXPECT_EQ(in.U16(), 0x0302);
  EXPECT_EQ(in.U32(), 0x07060504u);
  EXPECT_EQ(in.U64(), 0x0f0e0d0c0b0a0908u);
  EXPECT_EQ(in.I64(), -2);
  EXPECT_TRUE(in.Zeros(2));
  EXPECT_EQ(in.remaining(), 4u);
  EXPECT_EQ(AsText(in.Rest()), "rest");
  EXPECT_TRUE(in.ok());
  EXPECT_EQ(in.remaining(), 0u);
  EXPECT_TRUE(in.Rest().empty());
  EXPECT_TRUE(in.ok());
}

TEST(ReaderTest, AReadBeyondTheEndGivesZeroAndFailsForGood) {
  Reader in(AsBytes("\xff\xff\xff"sv));
  EXPECT_EQ(in.U64(), 0u);
  EXPECT_FALSE(in.ok());
  EXPECT_EQ(in.U8(), 0) << "what is left must not be taken for a later field";
  EXPECT_TRUE(in.Take(0).empty());
  EXPECT_FALSE(in.ok());
  EXPECT_EQ(in.Array16(), (std::array<uint8_t, 16>{}));
}

TEST(ReaderTest, TakeTrustsNoLength) {
  Reader in(AsBytes("abc"));
  EXPECT_TRUE(in.Take(~size_t{0}).empty());
  EXPECT_FALSE(in.ok());
}

TEST(ReaderTest, ZerosSeesEveryByteAndTheEnd) {
  EXPECT_FALSE(Reader(AsBytes("\x01\0\0"sv)).Zeros(3));
  EXPECT_FALSE(Reader(AsBytes("\0\0\x01"sv)).Zeros(3));
  EXPECT_TRUE(Reader(AsBytes("\0\0\x01"sv)).Zeros(2));
  EXPECT_FALSE(Reader(AsBytes("\0\0"sv)).Zeros(3));
}

RC_GTEST_PROP(BytesProperty, IntegersLeadBack,
              (uint8_t a, uint16_t b, uint32_t c, uint64_t d, int64_t e,
               const std::array<uint8_t, 16>& f)) {
  std::array<std::byte, 39> out;
  Writer to(out);
  to.U8(a);
  to.U16(b);
  to.U32(c);
  to.U64(d);
  to.I64(e);
  to.Bytes(f);
  Reader in(out);
  RC_ASSERT(in.U8() == a);
  RC_ASSERT(in.U16() == b);
  RC_ASSERT(in.U32() == c);
  RC_ASSERT(in.U64() == d);
  RC_ASSERT(in.I64() == e);
  RC_ASSERT(in.Array16() == f);
  RC_ASSERT(in.ok());
}

}  // namespace
}  // namespace tensorferry::wire
