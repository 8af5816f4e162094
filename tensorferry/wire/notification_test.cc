#include "tensorferry/wire/notification.h"

#include <limits>
#include <string>

#include "gtest/gtest.h"
#include "rapidcheck/gtest.h"

namespace tensorferry::wire {
namespace {

TEST(NotificationTest, GoldenTexts) {
  EXPECT_EQ(EncodeNotification(42), "42");
  EXPECT_EQ(EncodeNotification(-1), "-1");
  EXPECT_EQ(EncodeNotification(0), "0");
  EXPECT_EQ(EncodeNotification(std::numeric_limits<int64_t>::max()), "9223372036854775807");
  EXPECT_EQ(EncodeNotification(std::numeric_limits<int64_t>::min()), "-9223372036854775808");
}

TEST(NotificationTest, ParsesAsSmgsGatewayDoes) {
  EXPECT_EQ(ParseNotification("+42"), 42);
  EXPECT_EQ(ParseNotification("007"), 7);
  EXPECT_EQ(ParseNotification("-0"), 0);
  EXPECT_EQ(ParseNotification("9223372036854775807"), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(ParseNotification("-9223372036854775808"), std::numeric_limits<int64_t>::min());
}

TEST(NotificationTest, IgnoresAnythingElse) {
  for (const std::string& text :
       {std::string(), std::string("+"), std::string("-"), std::string("+-5"), std::string("-+5"),
        std::string("--5"), std::string("++5"), std::string(" 5"), std::string("5 "),
        std::string("5\n"), std::string("5\0", 2), std::string("2:7"), std::string("0x5"),
        std::string("5.0"), std::string("9223372036854775808"), std::string("-9223372036854775809"),
        std::string("99999999999999999999999"), std::string("\xff\xfe"),
        std::string("\xd9\xa5")}) {  // an Arabic five
    EXPECT_EQ(ParseNotification(text), std::nullopt) << text;
  }
}

RC_GTEST_PROP(NotificationProperty, EncodingLeadsBack, (int64_t key)) {
  RC_ASSERT(ParseNotification(EncodeNotification(key)) == key);
}

}  // namespace
}  // namespace tensorferry::wire
