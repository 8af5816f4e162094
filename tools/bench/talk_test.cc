#include "tools/bench/talk.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "tensorferry/base/error.h"
#include "tools/bench/line_stream.h"

namespace tensorferry::tools::bench {
namespace {

TEST(BenchTalk, OffersComeBackAsTheyWere) {
  const Offer offer = {.descriptor = std::string("\x01\xff\x00", 3),
                       .gateway = Duration(1234),
                       .began = Instant(Duration(987654321)),
                       .fill_cpu = 0.25,
                       .faults = 3,
                       .transport = "tcp"};
  EXPECT_EQ(FormatOffer(offer), "ok 01ff00 1234 987654321 0.250000000 3 tcp");
  const absl::StatusOr<Offer> parsed = ParseOffer(FormatOffer(offer));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(FormatOffer(*parsed), FormatOffer(offer));
}

TEST(BenchTalk, AStockExportersAnswerIsAnOffer) {
  const absl::StatusOr<Offer> parsed = ParseOffer("ok 0102 55 66 0.5");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->descriptor, "\x01\x02");
  EXPECT_EQ(parsed->gateway, Duration(55));
  EXPECT_EQ(ReasonOf(ParseOffer("full").status()), Reason::kBusy);
}

TEST(BenchTalk, TheOtherEndsErrorIsItsOwn) {
  const absl::Status error = MakeError(Reason::kArenaFull, "no room for\n7 bytes");
  EXPECT_EQ(FormatError(error), "error arena_full no room for 7 bytes");
  EXPECT_EQ(ReasonOf(ParseOffer(FormatError(error)).status()), Reason::kArenaFull);
  EXPECT_EQ(ReasonOf(AnswerTo("usage", FormatError(error)).status()), Reason::kArenaFull);
  EXPECT_EQ(*AnswerTo("usage", std::string("usage 1 2")), "1 2");
  EXPECT_EQ(*AnswerTo("filled", std::string("filled")), "");
}

TEST(BenchTalk, RequestsComeBackAsTheyWere) {
  const Request request = {.key = -7, .nbytes = 65536, .count = 16};
  EXPECT_EQ(FormatRequest(request), "fill -7 65536 16");
  const absl::StatusOr<Request> parsed = ParseRequest(FormatRequest(request));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(FormatRequest(*parsed), FormatRequest(request));
}

TEST(BenchTalk, OpeningsComeBackAsTheyWere) {
  const Opening opening = {.engine = "nixl",
                           .rpc = "127.0.0.1:5",
                           .copy_in = true,
                           .largest = 9,
                           .streams = 4,
                           .batch = 2,
                           .corrupt = 3,
                           .nixl_lib = "/x"};
  const absl::StatusOr<Opening> parsed = ParseOpening(FormatOpening(opening));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(FormatOpening(*parsed), FormatOpening(opening));
}

TEST(BenchTalk, NonsenseIsRefused) {
  for (const char* line :
       {"", "ok", "ok 0102 1 2", "ok 01x2 1 2 3", "ok 01 a 2 3", "no 01 1 2 3"}) {
    EXPECT_EQ(ReasonOf(ParseOffer(line).status()), Reason::kProtocol) << line;
  }
  for (const char* line : {"", "7 8 1", "fill 7 8", "fill x 8 1", "fill 7 8 0", "fill 7 8 1 2"}) {
    EXPECT_EQ(ReasonOf(ParseRequest(line).status()), Reason::kProtocol) << line;
  }
  for (const std::string& json :
       {std::string(), std::string("[]"), std::string("{}"), std::string(R"({"engine":7})"),
        FormatOpening({.streams = uint64_t{1} << 32}), FormatOpening({.batch = UINT64_MAX})}) {
    EXPECT_EQ(ReasonOf(ParseOpening(json).status()), Reason::kProtocol) << json;
  }
  EXPECT_EQ(ReasonOf(AnswerTo("usage", std::string("usages")).status()), Reason::kProtocol);
}

TEST(BenchTalk, StreamsCarryLinesHoweverTheyAreCut) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  LineStream left{UniqueFd(ends[0])};
  UniqueFd right(ends[1]);
  ASSERT_EQ(::send(right.get(), "one\ntw", 6, 0), 6);
  EXPECT_EQ(*left.Read(kPatience), "one");
  EXPECT_EQ(ReasonOf(left.Read(std::chrono::milliseconds(1)).status()), Reason::kTimedOut);
  EXPECT_EQ(ReasonOf(left.Read(std::chrono::milliseconds(1), /*spin=*/kPatience).status()),
            Reason::kTimedOut);
  ASSERT_EQ(::send(right.get(), "o\n\n", 3, 0), 3);
  EXPECT_EQ(*left.Read(kPatience), "two");
  EXPECT_EQ(*left.Read(kPatience), "");
  ASSERT_TRUE(left.Write("three").ok());
  char buffer[16];
  EXPECT_EQ(::recv(right.get(), buffer, sizeof(buffer), 0), 6);
  right.Reset();
  EXPECT_EQ(ReasonOf(left.Read(LineStream::kForEver).status()), Reason::kPeerClosed);
}

}  // namespace
}  // namespace tensorferry::tools::bench
