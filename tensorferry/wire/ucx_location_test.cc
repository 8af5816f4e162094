#include "tensorferry/wire/ucx_location.h"

#include <limits>
#include <string>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"
#include "rapidcheck/gtest.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/wire/bytes.h"

namespace tensorferry::wire {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

TEST(UcxLocationTest, GoldenBytes) {
  const auto bytes = EncodeUcxLocation({.address = 0x7f5500001000,
                                        .nbytes = 4096,
                                        .remote_key = {std::byte{0xab}, std::byte{0xcd}}});
  EXPECT_EQ(absl::BytesToHexString(AbslView(AsText(bytes))),
            "00100000557f0000"
            "0010000000000000"
            "abcd");
}

TEST(UcxLocationTest, WhatCannotBeIsRefused) {
  const auto decoded = [](uint64_t address, uint64_t nbytes, size_t key_bytes) {
    return ReasonOf(
        DecodeUcxLocation(EncodeUcxLocation({.address = address,
                                             .nbytes = nbytes,
                                             .remote_key = std::vector<std::byte>(key_bytes)}))
            .status());
  };
  EXPECT_EQ(decoded(4096, 100, 1), std::nullopt);
  EXPECT_EQ(decoded(4096, 0, kMaxRemoteKeyBytes), std::nullopt);
  EXPECT_EQ(decoded(kMax - 108, 100, 9), std::nullopt);
  EXPECT_EQ(decoded(4096, 100, 0), Reason::kProtocol);
  EXPECT_EQ(decoded(4096, 100, kMaxRemoteKeyBytes + 1), Reason::kProtocol);
  EXPECT_EQ(decoded(0, 100, 9), Reason::kProtocol);
  EXPECT_EQ(decoded(8, 100, 9), Reason::kProtocol) << "its header would be at 0";
  EXPECT_EQ(decoded(kMax - 107, 100, 9), Reason::kProtocol);
  EXPECT_EQ(decoded(4096, kMax, 9), Reason::kProtocol);
  EXPECT_EQ(decoded(kMax, 0, 9), Reason::kProtocol);
  EXPECT_EQ(ReasonOf(DecodeUcxLocation({}).status()), Reason::kProtocol);
}

RC_GTEST_PROP(UcxLocationProperty, WhatIsDecodedLeadsBack, (const std::string& text)) {
  const auto location = DecodeUcxLocation(AsBytes(text));
  if (location.ok()) RC_ASSERT(AsText(EncodeUcxLocation(*location)) == text);
}

}  // namespace
}  // namespace tensorferry::wire
