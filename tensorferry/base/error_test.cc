#include "tensorferry/base/error.h"

#include <cerrno>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensorferry/base/text.h"

namespace tensorferry {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr Reason kAll[] = {
#define TENSORFERRY_X(id, number, name, code, retryable, meaning) Reason::id,
    TENSORFERRY_REASONS(TENSORFERRY_X)
#undef TENSORFERRY_X
};

TEST(ReasonTest, NamesAndNumbersAreUniqueAndLeadBack) {
  std::set<std::string_view> names;
  std::set<uint16_t> numbers;
  for (const Reason reason : kAll) {
    EXPECT_TRUE(names.insert(ReasonName(reason)).second) << ReasonName(reason);
    EXPECT_TRUE(numbers.insert(static_cast<uint16_t>(reason)).second) << ReasonName(reason);
    EXPECT_EQ(ReasonFromName(ReasonName(reason)), reason);
    EXPECT_EQ(ReasonFromNumber(static_cast<uint16_t>(reason)), reason);
    EXPECT_FALSE(ReasonMeaning(reason).empty()) << ReasonName(reason);
  }
}

TEST(ReasonTest, ZeroMeansOkOnTheWireAndIsNoReason) {
  EXPECT_EQ(ReasonFromNumber(0), std::nullopt);
  EXPECT_EQ(ReasonFromNumber(65535), std::nullopt);
  EXPECT_EQ(ReasonFromName(""), std::nullopt);
  EXPECT_EQ(ReasonFromName("Bad_Token"), std::nullopt);
}

// Peers of other versions and users' dashboards know these.
TEST(ReasonTest, KeepsWhatPeersRelyOn) {
  EXPECT_EQ(ReasonFromNumber(1), Reason::kBadDescriptor);
  EXPECT_EQ(ReasonFromNumber(20), Reason::kBadToken);
  EXPECT_EQ(ReasonFromNumber(21), Reason::kLeaseEnded);
  EXPECT_EQ(ReasonFromNumber(22), Reason::kWrongInstance);
  EXPECT_EQ(ReasonFromNumber(23), Reason::kOutOfRange);
  EXPECT_EQ(ReasonFromNumber(24), Reason::kUidMismatch);
  EXPECT_EQ(ReasonFromNumber(42), Reason::kBusy);
  EXPECT_EQ(ReasonName(Reason::kBadToken), "bad_token");
  EXPECT_EQ(ReasonName(Reason::kLeaseEnded), "lease_ended");
  EXPECT_EQ(ReasonName(Reason::kTimedOut), "timed_out");
}

TEST(MakeErrorTest, CarriesReasonCodeAndText) {
  for (const Reason reason : kAll) {
    const absl::Status status = MakeError(reason, "lease 7");
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(ReasonOf(status), reason);
    EXPECT_EQ(ReasonNameOf(status), ReasonName(reason));
    EXPECT_EQ(IsRetryable(status), IsRetryable(reason));
    EXPECT_EQ(status.message(), "lease 7");
  }
  EXPECT_EQ(MakeError(Reason::kBadToken, "").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(IsRetryable(Reason::kTimedOut));
  EXPECT_FALSE(IsRetryable(Reason::kBadToken));
}

TEST(ReasonOfTest, StatusesMadeElsewhereHaveTheNameOfTheirCode) {
  EXPECT_EQ(ReasonOf(absl::OkStatus()), std::nullopt);
  EXPECT_EQ(ReasonNameOf(absl::OkStatus()), "ok");
  EXPECT_FALSE(IsRetryable(absl::OkStatus()));
  const absl::Status foreign = absl::UnavailableError("elsewhere");
  EXPECT_EQ(ReasonOf(foreign), std::nullopt);
  EXPECT_FALSE(IsRetryable(foreign));
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "elsewhere");
    std::string name = absl::StatusCodeToString(status.code());
    for (char& c : name) c = static_cast<char>(std::tolower(c));
    EXPECT_EQ(ReasonNameOf(status), name);
  }
}

TEST(ReasonOfTest, ReasonOfANewerLibraryIsNone) {
  absl::Status status = absl::InternalError("from the future");
  status.SetPayload("tensorferry/reason", absl::Cord("not_invented_yet"));
  EXPECT_EQ(ReasonOf(status), std::nullopt);
  EXPECT_EQ(ReasonNameOf(status), "internal");
}

TEST(SystemErrorTest, PicksTheReason) {
  for (const int e : {ENOMEM, EMFILE, ENFILE, ENOSPC, EAGAIN}) {
    EXPECT_EQ(ReasonOf(SystemError(e, "mmap")), Reason::kNoMemory) << e;
  }
  EXPECT_EQ(ReasonOf(SystemError(EADDRINUSE, "bind")), Reason::kAddressInUse);
  EXPECT_EQ(ReasonOf(SystemError(EPERM, "mlock")), Reason::kSystem);
  EXPECT_EQ(SystemError(EPERM, "mlock of 4096 bytes").message(),
            "mlock of 4096 bytes: Operation not permitted");
}

TEST(AnnotateTest, KeepsReasonAndCode) {
  const absl::Status inner = MakeError(Reason::kBadToken, "lease 7");
  const absl::Status outer = Annotate(inner, "gateway 10.0.0.5:18515");
  EXPECT_EQ(ReasonOf(outer), Reason::kBadToken);
  EXPECT_EQ(outer.code(), inner.code());
  EXPECT_EQ(outer.message(), "gateway 10.0.0.5:18515: lease 7");
  EXPECT_TRUE(Annotate(absl::OkStatus(), "anything").ok());
}

TEST(TextTest, StrCatTakesEitherStringView) {
  const std::string_view std_view = "std";
  const absl::string_view absl_view = "absl";
  const std::string owned = "owned";
  EXPECT_EQ(StrCat(std_view, " ", absl_view, " ", owned, " ", 7, " ", absl::Hex(255)),
            "std absl owned 7 ff");
  std::string out = "a";
  StrAppend(&out, std_view, absl_view);
  EXPECT_EQ(out, "astdabsl");
  EXPECT_EQ(StdView(AbslView(std_view)).data(), std_view.data());
}

}  // namespace
}  // namespace tensorferry
