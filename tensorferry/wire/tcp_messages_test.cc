#include "tensorferry/wire/tcp_messages.h"

#include <limits>
#include <string>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rapidcheck/gtest.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/wire/bytes.h"

namespace tensorferry::wire {
namespace {

using ::testing::HasSubstr;

TcpRequest ARequest() {
  TcpRequest r;
  r.kind = TcpRequest::Kind::kRead;
  r.request = 0x0102030405060708;
  r.instance.fill(0xaa);
  r.lease = {.id = 5, .generation = 7, .token = {}};
  r.lease.token.fill(0xbb);
  r.offset = 16;
  r.length = 4096;
  r.deadline_ms = 5000;
  return r;
}

template <size_t N>
std::string Hex(const std::array<std::byte, N>& bytes) {
  return absl::BytesToHexString(AbslView(AsText(bytes)));
}

TEST(TcpRequestTest, GoldenBytes) {
  EXPECT_EQ(Hex(EncodeTcpRequest(ARequest())),
            "54465131"
            "0100"
            "0000"
            "0807060504030201"
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
            "0500000000000000"
            "0700000000000000"
            "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
            "1000000000000000"
            "0010000000000000"
            "88130000"
            "00000000"
            "0000000000000000");
}

TEST(TcpAnswerTest, GoldenBytes) {
  EXPECT_EQ(Hex(EncodeTcpAnswer({.status = 0, .request = 5, .length = 4096})),
            "54464131"
            "0000"
            "0000"
            "0500000000000000"
            "0010000000000000"
            "0000000000000000");
}

TEST(TcpRequestTest, EveryByteIsAFieldOrRefused) {
  const auto good = EncodeTcpRequest(ARequest());
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      auto bytes = good;
      bytes[i] ^= std::byte{1} << bit;
      const auto r = DecodeTcpRequest(bytes);
      const bool magic = i < 4;
      const bool another_kind = i == 4 && bit == 1;  // read becomes locate
      const bool kind_or_padding = ((i >= 4 && i < 8) || i >= 84) && !another_kind;
      if (magic || kind_or_padding) {
        EXPECT_FALSE(r.ok()) << i << "." << bit;
        const auto reason = ReasonOf(r.status());
        EXPECT_TRUE(reason == Reason::kProtocol || (i == 3 && reason == Reason::kUnknownVersion));
      } else {
        ASSERT_TRUE(r.ok()) << i << "." << bit << r.status();
        EXPECT_FALSE(*r == ARequest()) << i << "." << bit;
        EXPECT_EQ(EncodeTcpRequest(*r), bytes);
      }
    }
  }
}

TEST(TcpRequestTest, NamesAnotherVersion) {
  auto bytes = EncodeTcpRequest(ARequest());
  bytes[3] = std::byte{'2'};
  const auto r = DecodeTcpRequest(bytes);
  EXPECT_EQ(ReasonOf(r.status()), Reason::kUnknownVersion);
  EXPECT_THAT(std::string(r.status().message()),
              HasSubstr("version 2, this side speaks version 1"));
  bytes[3] = std::byte{'x'};
  EXPECT_EQ(ReasonOf(DecodeTcpRequest(bytes).status()), Reason::kProtocol);
}

TEST(TcpAnswerTest, EveryByteIsAFieldOrRefused) {
  const auto good = EncodeTcpAnswer({.status = 0, .request = 5, .length = 0});
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      auto bytes = good;
      bytes[i] ^= std::byte{1} << bit;
      const auto a = DecodeTcpAnswer(bytes);
      const bool field = (i >= 4 && i < 6) || (i >= 8 && i < 24);
      EXPECT_EQ(a.ok(), field) << i << "." << bit;
      if (a.ok()) {
        EXPECT_EQ(EncodeTcpAnswer(*a), bytes);
      }
    }
  }
}

TEST(TcpAnswerTest, ARefusalHasNoPayloadAndMayBeOfANewerPeer) {
  const TcpAnswer newer = {.status = 65535, .request = 5, .length = 0};
  EXPECT_EQ(*DecodeTcpAnswer(EncodeTcpAnswer(newer)), newer);
  const auto both = DecodeTcpAnswer(EncodeTcpAnswer({.status = 21, .request = 5, .length = 1}));
  EXPECT_EQ(ReasonOf(both.status()), Reason::kProtocol);
}

RC_GTEST_PROP(TcpProperty, RequestsLeadBack,
              (uint64_t request, const InstanceId& instance, const Token& token, uint64_t offset,
               uint64_t length, uint32_t deadline_ms)) {
  TcpRequest r;
  r.kind = *rc::gen::element(TcpRequest::Kind::kRead, TcpRequest::Kind::kDone,
                             TcpRequest::Kind::kLocate);
  r.request = request;
  r.instance = instance;
  r.lease = {.id = *rc::gen::arbitrary<uint64_t>(),
             .generation = *rc::gen::arbitrary<uint64_t>(),
             .token = token};
  r.offset = offset;
  r.length = length;
  r.deadline_ms = deadline_ms;
  const auto back = DecodeTcpRequest(EncodeTcpRequest(r));
  RC_ASSERT(back.ok());
  RC_ASSERT(*back == r);
}

RC_GTEST_PROP(TcpProperty, AnswersLeadBack, (uint16_t status, uint64_t request, uint64_t length)) {
  const TcpAnswer a = {.status = status, .request = request, .length = status == 0 ? length : 0};
  const auto back = DecodeTcpAnswer(EncodeTcpAnswer(a));
  RC_ASSERT(back.ok());
  RC_ASSERT(*back == a);
}

}  // namespace
}  // namespace tensorferry::wire
