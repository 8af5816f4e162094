// The worker's side against gateways that misbehave.
#include "tensorferry/engine/tcp/tcp_pull_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/tcp/tcp_testing.h"

namespace tensorferry::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

Instant In(Duration d) { return SaturatingAdd(RealClock().Now(), d); }

std::vector<std::byte> Pattern(size_t size) {
  std::vector<std::byte> out(size);
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>(i * 7 + 1);
  return out;
}

class TcpPullEngineTest : public ::testing::Test {
 protected:
  TcpPullEngineTest() { descriptor_.lease = {.id = 7, .generation = 70}; }

  wire::Descriptor& At(std::vector<SocketAddress> addresses) {
    descriptor_.ways = {wire::NetWay{wire::NetWay::Kind::kTcp, std::move(addresses)}};
    return descriptor_;
  }

  std::unique_ptr<PullOp> Start(size_t length, Instant deadline = kNever) {
    into_.assign(length, std::byte{0});
    return engine_->Start({.descriptor = &descriptor_,
                           .offset = 0,
                           .length = length,
                           .into = into_,
                           .deadline = deadline});
  }

  absl::Status Pull(size_t length, Instant deadline = kNever) {
    const auto op = Start(length, deadline);
    return DriveOp(*op).status();
  }

  std::vector<std::string> log_;
  std::unique_ptr<PullEngine> engine_ = CreateTcpPullEngine(
      {.connect_timeout = seconds(20),
       .log = [this](LogLevel, std::string_view line) { log_.emplace_back(line); }});
  wire::Descriptor descriptor_;
  std::vector<std::byte> into_;
};

std::string Text(const absl::Status& status) { return std::string(status.message()); }

TEST_F(TcpPullEngineTest, AsksForExactlyWhatIsWanted) {
  ScriptedGateway gateway([&](RawConnection& c, int) {
    while (const auto request = c.ReadRequest()) {
      EXPECT_EQ(request->kind, wire::TcpRequest::Kind::kRead);
      EXPECT_EQ(request->instance, descriptor_.instance);
      EXPECT_EQ(request->lease, descriptor_.lease);
      EXPECT_EQ(request->length, 100u);
      EXPECT_GT(request->deadline_ms, 59000u);
      EXPECT_LE(request->deadline_ms, 60000u);
      AnswerWith(c, *request, Pattern(100));
    }
  });
  At({gateway.address()});
  descriptor_.instance.fill(3);
  descriptor_.lease.token.fill(9);
  EXPECT_TRUE(Pull(100, In(seconds(60))).ok());
  EXPECT_EQ(into_, Pattern(100));
  engine_.reset();
}

TEST_F(TcpPullEngineTest, AnAnswerThatComesByteByByteArrives) {
  ScriptedGateway gateway([](RawConnection& c, int) {
    const auto request = c.ReadRequest();
    const std::vector<std::byte> payload = Pattern(50);
    for (const std::byte b :
         wire::EncodeTcpAnswer({.request = request->request, .length = payload.size()})) {
      c.Send({&b, 1});
    }
    for (const std::byte b : payload) c.Send({&b, 1});
    c.ReadsEnd();
  });
  At({gateway.address()});
  EXPECT_TRUE(Pull(50).ok());
  EXPECT_EQ(into_, Pattern(50));
  engine_.reset();
}

TEST_F(TcpPullEngineTest, GarbageIsAProtocolError) {
  ScriptedGateway gateway([](RawConnection& c, int) {
    c.ReadRequest();
    c.Send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    EXPECT_TRUE(c.ReadsEnd());
  });
  At({gateway.address()});
  const absl::Status status = Pull(100);
  EXPECT_EQ(ReasonOf(status), Reason::kProtocol) << status;
  EXPECT_THAT(Text(status), AllOf(HasSubstr("lease 7"), HasSubstr(gateway.address().ToString())));
}

TEST_F(TcpPullEngineTest, ALengthThatWasNotAskedForIsAProtocolError) {
  constexpr uint64_t kLengths[] = {0, 99, 101, uint64_t{1} << 63, ~uint64_t{0}};
  ScriptedGateway gateway([&](RawConnection& c, int nth) {
    const auto request = c.ReadRequest();
    c.Send(wire::EncodeTcpAnswer({.request = request->request, .length = kLengths[nth]}));
    c.Send(Pattern(200));
    EXPECT_TRUE(c.ReadsEnd());
  });
  At({gateway.address()});
  for (const uint64_t length : kLengths) {
    const absl::Status status = Pull(100);
    EXPECT_EQ(ReasonOf(status), Reason::kProtocol) << status;
    EXPECT_THAT(Text(status), HasSubstr(StrCat(length, " bytes, not 100")));
  }
}

TEST_F(TcpPullEngineTest, AnAnswerToAnotherRequestIsAProtocolError) {
  ScriptedGateway gateway([](RawConnection& c, int) {
    const auto request = c.ReadRequest();
    c.Send(wire::EncodeTcpAnswer({.request = request->request + 1, .length = 100}));
    EXPECT_TRUE(c.ReadsEnd());
  });
  At({gateway.address()});
  EXPECT_EQ(ReasonOf(Pull(100)), Reason::kProtocol);
}

TEST_F(TcpPullEngineTest, ACloseSaysHowFarItCame) {
  ScriptedGateway gateway([](RawConnection& c, int nth) {
    const auto request = c.ReadRequest();
    const auto header = wire::EncodeTcpAnswer({.request = request->request, .length = 100});
    if (nth == 0) c.Send(std::span(header).first(5));
    if (nth == 1) c.Send(header);
    if (nth == 2) AnswerWith(c, {.request = request->request}, {});
    if (nth == 3) {
      c.Send(header);
      c.Send(Pattern(40));
    }
  });
  At({gateway.address()});
  const absl::Status in_header = Pull(100);
  EXPECT_EQ(ReasonOf(in_header), Reason::kPeerClosed) << in_header;
  const absl::Status after_header = Pull(100);
  EXPECT_EQ(ReasonOf(after_header), Reason::kPeerClosed);
  EXPECT_THAT(Text(after_header), HasSubstr("0 of 100 bytes"));
  EXPECT_EQ(ReasonOf(Pull(100)), Reason::kProtocol);  // a length of 0
  const absl::Status in_payload = Pull(100);
  EXPECT_EQ(ReasonOf(in_payload), Reason::kPeerClosed);
  EXPECT_THAT(Text(in_payload), AllOf(HasSubstr("40 of 100 bytes"), HasSubstr("lease 7"),
                                      HasSubstr(gateway.address().ToString())));
  EXPECT_TRUE(IsRetryable(in_payload));
}

TEST_F(TcpPullEngineTest, RefusalsKeepTheirReasonAndTheConnection) {
  constexpr Reason kReasons[] = {Reason::kLeaseEnded, Reason::kBadToken, Reason::kOutOfRange,
                                 Reason::kSystem, Reason::kShutDown};
  ScriptedGateway gateway([&](RawConnection& c, int) {
    for (const Reason reason : kReasons) {
      const auto request = c.ReadRequest();
      ASSERT_TRUE(request.has_value());
      c.Send(wire::EncodeTcpAnswer(
          {.status = static_cast<uint16_t>(reason), .request = request->request}));
    }
    EXPECT_TRUE(c.ReadsEnd());
  });
  At({gateway.address()});
  for (const Reason reason : kReasons) {
    const absl::Status status = Pull(100);
    EXPECT_EQ(ReasonOf(status), reason) << status;
    EXPECT_THAT(Text(status), AllOf(HasSubstr("lease 7"), HasSubstr(gateway.address().ToString()),
                                    HasSubstr(std::string(ReasonMeaning(reason)))));
  }
  EXPECT_EQ(gateway.connections(), 1);
  engine_.reset();
}

TEST_F(TcpPullEngineTest, ABusyGatewayClosesAndSoDoWe) {
  ScriptedGateway gateway([](RawConnection& c, int) {
    const auto request = c.ReadRequest();
    c.Send(wire::EncodeTcpAnswer(
        {.status = static_cast<uint16_t>(Reason::kBusy), .request = request->request}));
    EXPECT_TRUE(c.ReadsEnd());
  });
  At({gateway.address()});
  EXPECT_EQ(ReasonOf(Pull(100)), Reason::kBusy);
  EXPECT_EQ(ReasonOf(Pull(100)), Reason::kBusy);
  EXPECT_EQ(gateway.connections(), 2);
}

TEST_F(TcpPullEngineTest, ARefusalForAReasonFromTheFutureIsReportedByNumber) {
  ScriptedGateway gateway([](RawConnection& c, int) {
    const auto request = c.ReadRequest();
    c.Send(wire::EncodeTcpAnswer({.status = 9999, .request = request->request}));
    EXPECT_TRUE(c.ReadsEnd());
  });
  At({gateway.address()});
  const absl::Status status = Pull(100);
  EXPECT_EQ(ReasonOf(status), Reason::kProtocol);
  EXPECT_THAT(Text(status), HasSubstr("9999"));
  engine_.reset();
}

TEST_F(TcpPullEngineTest, SilenceEndsAtTheDeadline) {
  ScriptedGateway gateway([](RawConnection& c, int nth) {
    const auto request = c.ReadRequest();
    if (nth == 1) {
      c.Send(wire::EncodeTcpAnswer({.request = request->request, .length = 100}));
      c.Send(Pattern(40));
    }
    EXPECT_TRUE(c.ReadsEnd());  // it was closed, not kept
  });
  At({gateway.address()});
  const absl::Status nothing = Pull(100, In(milliseconds(50)));
  EXPECT_EQ(ReasonOf(nothing), Reason::kTimedOut) << nothing;
  EXPECT_THAT(Text(nothing), AllOf(HasSubstr("lease 7"), HasSubstr("0 of 100 bytes"),
                                   HasSubstr(gateway.address().ToString())));
  const absl::Status some = Pull(100, In(milliseconds(50)));
  EXPECT_EQ(ReasonOf(some), Reason::kTimedOut);
  EXPECT_THAT(Text(some), HasSubstr("of 100 bytes"));
}

TEST_F(TcpPullEngineTest, ADeadlineThatHasPassedDialsNobody) {
  Listener gateway;
  At({gateway.address()});
  EXPECT_EQ(ReasonOf(Pull(100, In(milliseconds(-1)))), Reason::kTimedOut);
  EXPECT_TRUE(gateway.Untouched());
}

TEST_F(TcpPullEngineTest, AnAbandonedPullClosesItsConnection) {
  Listener gateway;
  At({gateway.address()});
  auto op = Start(100);
  while (op->Step() == PullOp::Progress::kMoved) {
  }
  RawConnection accepted = gateway.Accept();
  EXPECT_TRUE(accepted.ReadRequest().has_value());
  op.reset();
  EXPECT_TRUE(accepted.ReadsEnd());
}

TEST_F(TcpPullEngineTest, AnIdleConnectionThatDiedIsReplacedWithinThePull) {
  ScriptedGateway gateway([](RawConnection& c, int nth) {
    const auto request = c.ReadRequest();
    AnswerWith(c, *request, Pattern(100));
    if (nth == 1) {
      // Dies in the middle of the next answer's header.
      const auto second = c.ReadRequest();
      const auto header = wire::EncodeTcpAnswer({.request = second->request, .length = 100});
      c.Send(std::span(header).first(20));
    }
    if (nth == 2) c.ReadsEnd();
  });
  At({gateway.address()});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Pull(100).ok()) << i;
  EXPECT_EQ(into_, Pattern(100));
  EXPECT_EQ(gateway.connections(), 3);
  engine_.reset();
}

TEST_F(TcpPullEngineTest, AFreshConnectionThatIsClosedIsAnError) {
  ScriptedGateway gateway([](RawConnection& c, int) { c.ReadRequest(); });
  At({gateway.address()});
  const absl::Status status = Pull(100);
  EXPECT_EQ(ReasonOf(status), Reason::kPeerClosed) << status;
  EXPECT_EQ(gateway.connections(), 1);
}

TEST_F(TcpPullEngineTest, AnotherInstanceOnAnIdleConnectionIsAskedAgainOnAFreshOne) {
  const auto wrong = [](RawConnection& c) {
    const auto request = c.ReadRequest();
    c.Send(wire::EncodeTcpAnswer(
        {.status = static_cast<uint16_t>(Reason::kWrongInstance), .request = request->request}));
  };
  ScriptedGateway gateway([&](RawConnection& c, int nth) {
    if (nth == 0) {
      AnswerWith(c, *c.ReadRequest(), Pattern(100));
      wrong(c);
    } else {
      wrong(c);
    }
    EXPECT_TRUE(c.ReadsEnd());
  });
  At({gateway.address()});
  EXPECT_TRUE(Pull(100).ok());
  EXPECT_EQ(ReasonOf(Pull(100)), Reason::kWrongInstance);
  EXPECT_EQ(gateway.connections(), 2);
}

TEST_F(TcpPullEngineTest, ADeadAddressFailsAtOnceAndIsRemembered) {
  const Listener closed = Listener::Closed();
  At({closed.address()});
  const absl::Status first = Pull(100);
  EXPECT_EQ(ReasonOf(first), Reason::kUnreachable) << first;
  EXPECT_THAT(Text(first), HasSubstr(closed.address().ToString()));
  EXPECT_TRUE(IsRetryable(first));
  EXPECT_THAT(Text(Pull(100)), HasSubstr("not tried again"));
  EXPECT_EQ(log_.size(), 1u);
}

TEST_F(TcpPullEngineTest, AddressesAreTriedInOrder) {
  const Listener closed = Listener::Closed();
  ScriptedGateway stranger([](RawConnection& c, int) {
    c.ReadRequest();
    c.Send(std::string(32, 'x'));
    c.ReadsEnd();
  });
  ScriptedGateway gateway([](RawConnection& c, int) {
    while (const auto request = c.ReadRequest()) AnswerWith(c, *request, Pattern(100));
  });
  At({closed.address(), stranger.address(), gateway.address()});
  EXPECT_TRUE(Pull(100).ok());
  EXPECT_EQ(into_, Pattern(100));
  EXPECT_EQ(stranger.connections(), 1);
  // What answered is asked first from now on.
  EXPECT_TRUE(Pull(100).ok());
  EXPECT_EQ(stranger.connections(), 1);
  EXPECT_EQ(gateway.connections(), 1);
  engine_.reset();
}

TEST_F(TcpPullEngineTest, TheMostTellingOfSeveralFailuresIsReported) {
  const Listener closed = Listener::Closed();
  ScriptedGateway stranger([](RawConnection& c, int) {
    c.ReadRequest();
    c.Send(std::string(32, 'x'));
    c.ReadsEnd();
  });
  At({closed.address(), stranger.address(), closed.address()});
  EXPECT_EQ(ReasonOf(Pull(100)), Reason::kProtocol);
}

TEST_F(TcpPullEngineTest, AnAddressThatSwallowsPacketsLeavesTimeForTheNext) {
  BlackHole hole;
  ScriptedGateway gateway([](RawConnection& c, int) {
    AnswerWith(c, *c.ReadRequest(), Pattern(100));
    c.ReadsEnd();
  });
  At({hole.address(), gateway.address()});
  const absl::Status status = Pull(100, In(seconds(2)));
  EXPECT_TRUE(status.ok()) << status;
  engine_.reset();
}

TEST_F(TcpPullEngineTest, APullThatNeverConnectsTimesOut) {
  BlackHole hole;
  At({hole.address()});
  const absl::Status status = Pull(100, In(milliseconds(50)));
  EXPECT_EQ(ReasonOf(status), Reason::kTimedOut) << status;
  EXPECT_THAT(Text(status), HasSubstr("while connecting"));
}

TEST_F(TcpPullEngineTest, ASilentGatewayIsUnreachableAfterTheConnectTimeout) {
  BlackHole hole;
  At({hole.address()});
  engine_ = CreateTcpPullEngine({.connect_timeout = milliseconds(20)});
  std::vector<std::unique_ptr<PullOp>> ops;
  for (int i = 0; i < 8; ++i) ops.push_back(Start(0));
  for (const auto& result : DriveOps(ops)) {
    EXPECT_EQ(ReasonOf(result.status()), Reason::kUnreachable) << result.status();
  }
}

TEST_F(TcpPullEngineTest, OnlyAllowedAddressesAreDialled) {
  Listener gateway;
  engine_ = CreateTcpPullEngine({.allow = *AllowList::Parse({"10.0.0.0/8"})});
  At({gateway.address()});
  const absl::Status status = engine_->CanTry(descriptor_);
  EXPECT_EQ(ReasonOf(status), Reason::kNotAllowed);
  EXPECT_THAT(Text(status),
              AllOf(HasSubstr(gateway.address().ToString()), HasSubstr("10.0.0.0/8")));
  EXPECT_EQ(ReasonOf(Pull(100)), Reason::kNotAllowed);
  EXPECT_TRUE(gateway.Untouched());
}

TEST_F(TcpPullEngineTest, AnAllowedAddressBesideAForbiddenOneIsUsed) {
  Listener forbidden;
  ScriptedGateway gateway([](RawConnection& c, int) {
    AnswerWith(c, *c.ReadRequest(), Pattern(100));
    c.ReadsEnd();
  });
  const std::string allowed = "127.0.0.1/32";
  engine_ = CreateTcpPullEngine({.allow = *AllowList::Parse({allowed})});
  const SocketAddress outside = *SocketAddress::Parse("127.0.0.2:9");
  At({outside, gateway.address()});
  EXPECT_TRUE(engine_->CanTry(descriptor_).ok());
  EXPECT_TRUE(Pull(100).ok());
  engine_.reset();
}

TEST_F(TcpPullEngineTest, CanTryNamesWhatIsWrong) {
  descriptor_.ways.clear();
  EXPECT_EQ(ReasonOf(engine_->CanTry(descriptor_)), Reason::kNoCommonWay);
  descriptor_.ways = {
      wire::NetWay{wire::NetWay::Kind::kUcx, {*SocketAddress::Parse("127.0.0.1:9")}}};
  EXPECT_EQ(ReasonOf(engine_->CanTry(descriptor_)), Reason::kNoCommonWay);
  At({*SocketAddress::Parse("0.0.0.0:9")});
  EXPECT_EQ(ReasonOf(engine_->CanTry(descriptor_)), Reason::kBadAddress);
  At({AnyLoopbackPort()});
  EXPECT_EQ(ReasonOf(engine_->CanTry(descriptor_)), Reason::kBadAddress);
  At({*SocketAddress::Parse("127.0.0.1:9")});
  EXPECT_TRUE(engine_->CanTry(descriptor_).ok());
}

TEST_F(TcpPullEngineTest, NeedsMemoryOfTheRightSize) {
  Listener gateway;
  At({gateway.address()});
  std::vector<std::byte> small(99);
  const auto op = engine_->Start({.descriptor = &descriptor_, .length = 100, .into = small});
  EXPECT_EQ(ReasonOf(DriveOp(*op).status()), Reason::kSizeMismatch);
  EXPECT_TRUE(gateway.Untouched());
}

}  // namespace
}  // namespace tensorferry::engine
