// engine/ucx between two processes, of which one is killed or stopped in mid-transfer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/local/local_testing.h"
#include "tensorferry/engine/ucx/ucx_testing.h"

namespace tensorferry::engine {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr uint64_t kLarge = 64 << 20;  // more than the sockets' buffers hold
constexpr uint64_t kSmall = 1000;

SocketAddress AnyPort() { return *SocketAddress::Parse("127.0.0.1:0"); }

struct Gateway : UcxGateway {
  explicit Gateway(uint8_t instance, const UcxExportOptions& options)
      : UcxGateway(*UcxForTest(), {.arena_bytes = kLarge + (1 << 20), .instance = instance},
                   options) {}
  PublishedLease large = leases.Add(kLarge);
  PublishedLease small = leases.Add(kSmall);
};

// A gateway for a process of its own. Verbs: large, small → descriptor; unpinned → yes, once it is.
ChildProcess::Handler MakeGatewayProcess(uint8_t instance, const SocketAddress& listen,
                                         UcxGet get = UcxGet::kOff) {
  auto gateway =
      std::make_shared<Gateway>(instance, UcxExportOptions{.ucx = {.get = get}, .listen = listen});
  return [gateway](std::string_view verb, std::string_view) -> std::string {
    if (verb == "large") return Encoded(gateway->DescriptorOf(gateway->large));
    if (verb == "small") return Encoded(gateway->DescriptorOf(gateway->small));
    return gateway->Unpinned() ? "yes" : "no";
  };
}

std::unique_ptr<PullEngine> MakePuller(UcxGet get = UcxGet::kOff) {
  return *UcxForTest()->CreatePull({.ucx = {.get = get}});
}

std::string Digest(std::span<const std::byte> bytes) {
  return StrCat(XXH3_64bits(bytes.data(), bytes.size()));
}

// A worker for a process of its own. Verb: begin D → is in the middle of a pull with `limit`.
ChildProcess::Handler MakeWorkerProcess(Duration limit) {
  auto engine = std::shared_ptr<PullEngine>(MakePuller());
  auto transfer = std::make_shared<std::unique_ptr<UcxTransfer>>();
  return [=](std::string_view, std::string_view descriptor) -> std::string {
    *transfer = InMidTransfer(*engine, Decoded(descriptor), limit);
    return *transfer != nullptr ? "begun" : "done";
  };
}

// A worker that stops itself in the middle of a pull. Verbs: fetch D → stops, and once it goes on, the
// reason's name; digest → of what is in the pull's memory.
ChildProcess::Handler MakeSlowWorkerProcess() {
  auto engine = std::shared_ptr<PullEngine>(MakePuller(UcxGet::kEvenEmulated));
  auto transfer = std::make_shared<std::unique_ptr<UcxTransfer>>();
  return [=](std::string_view verb, std::string_view descriptor) -> std::string {
    if (verb == "digest") return Digest((*transfer)->into);
    *transfer = std::make_unique<UcxTransfer>(*engine, Decoded(descriptor));
    (void)(*transfer)->Begin();
    (void)::raise(SIGSTOP);
    return ReasonText(DriveOp(*(*transfer)->op).status());
  };
}

absl::Status Pull(PullEngine& engine, const wire::Descriptor& d) {
  UcxTransfer transfer(engine, d);
  return DriveOp(*transfer.op).status();
}

// Processes first: UCX's threads do not survive a fork.
class UcxProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(UcxModulePathForTest())) GTEST_SKIP() << kNoUcx;
  }
};

// With both ways to pull. UCX's emulation of the one may end a gateway whose reader goes away, so that
// here it is the gateway that goes.
class UcxGatewayProcessTest : public UcxProcessTest,
                              public ::testing::WithParamInterface<UcxGet> {};

INSTANTIATE_TEST_SUITE_P(, UcxGatewayProcessTest,
                         ::testing::Values(UcxGet::kOff, UcxGet::kEvenEmulated),
                         [](const auto& mode) {
                           return mode.param == UcxGet::kOff ? "Asked" : "Get";
                         });

TEST_P(UcxGatewayProcessTest, AGatewayKilledInMidTransferIsAnErrorAndThenUnreachable) {
  ChildProcess gateway([] { return MakeGatewayProcess(1, AnyPort(), GetParam()); });
  const auto engine = MakePuller(GetParam());
  const wire::Descriptor large = Decoded(gateway.Ask("large"));
  // Several, of which it cannot have answered all.
  const auto first = InMidTransfer(*engine, large);
  ASSERT_NE(first, nullptr);
  std::vector<std::unique_ptr<UcxTransfer>> others;
  gateway.Stop();
  for (int i = 0; i < 3; ++i) others.push_back(std::make_unique<UcxTransfer>(*engine, large));
  gateway.Kill();
  for (const auto& transfer : others) {
    const absl::Status status = DriveOp(*transfer->op).status();
    EXPECT_THAT(ReasonOf(status), AnyOf(Reason::kPeerClosed, Reason::kUnreachable)) << status;
  }
  if (const absl::Status status = DriveOp(*first->op).status(); !status.ok()) {
    EXPECT_EQ(ReasonOf(status), Reason::kPeerClosed) << status;
  }
  EXPECT_EQ(ReasonOf(Pull(*engine, large)), Reason::kUnreachable);
}

TEST_F(UcxProcessTest, AStoppedGatewayTimesOutAndSiblingsArriveWhenItGoesOn) {
  ChildProcess gateway([] { return MakeGatewayProcess(1, AnyPort()); });
  // Of a stopped one no connection comes, however long this machine takes: it is deadlines that end.
  const auto engine = *UcxForTest()->CreatePull({.connect_timeout = hours(1)});
  const wire::Descriptor large = Decoded(gateway.Ask("large"));
  const wire::Descriptor small = Decoded(gateway.Ask("small"));
  ASSERT_TRUE(Pull(*engine, small).ok());
  // Stopped, it cannot end what is in the middle, and of several not all are over by then.
  std::vector<std::unique_ptr<UcxTransfer>> caught;
  for (const Instant end = RealClock().Now() + kTestLimit;
       caught.empty() && RealClock().Now() < end;) {
    std::vector<std::unique_ptr<UcxTransfer>> transfers;
    for (int i = 0; i < 4; ++i) {
      transfers.push_back(
          std::make_unique<UcxTransfer>(*engine, large, RealClock().Now() + seconds(2)));
    }
    (void)transfers[0]->Begin();
    gateway.Stop();
    for (auto& transfer : transfers) {
      const absl::Status status = DriveOp(*transfer->op).status();
      if (status.ok()) continue;
      EXPECT_EQ(ReasonOf(status), Reason::kTimedOut) << status;
      caught.push_back(std::move(transfer));
    }
    if (caught.empty()) gateway.Continue();
  }
  ASSERT_FALSE(caught.empty());
  // Free: nothing writes to it any more.
  for (const auto& transfer : caught) std::ranges::fill(transfer->into, std::byte{0xee});
  UcxTransfer sibling(*engine, small);
  EXPECT_NE(sibling.op->Step(), PullOp::Progress::kDone);
  UcxTransfer short_one(*engine, small, RealClock().Now() + seconds(1));
  EXPECT_EQ(ReasonOf(DriveOp(*short_one.op).status()), Reason::kTimedOut);
  gateway.Continue();
  // It was asked for before the endpoint was closed for a sibling's sake.
  const absl::Status status = DriveOp(*sibling.op).status();
  EXPECT_TRUE(status.ok() || ReasonOf(status) == Reason::kUnreachable) << status;
  EXPECT_EQ(gateway.Ask("unpinned"), "yes");
  EXPECT_TRUE(Eventually([&] { return Pull(*engine, small).ok(); }));
  for (const auto& transfer : caught) {
    EXPECT_TRUE(
        std::ranges::all_of(transfer->into, [](std::byte b) { return b == std::byte{0xee}; }));
  }
}

TEST_P(UcxGatewayProcessTest, AGatewayKilledAndStartedAgainIsReachedWithinThePull) {
  // The address is known only once the first one runs, and all must be forked before UCX is here.
  const std::string loopback = "127.0.0.1:0";
  std::vector<std::unique_ptr<ChildProcess>> gateways;
  for (uint8_t instance = 1; instance <= 4; ++instance) {
    gateways.push_back(std::make_unique<ChildProcess>([instance] {
      auto made = std::make_shared<ChildProcess::Handler>();
      return [=](std::string_view verb, std::string_view argument) -> std::string {
        if (verb != "start") return (*made)(verb, argument);
        *made = MakeGatewayProcess(instance, *SocketAddress::Parse(argument), GetParam());
        return "ok";
      };
    }));
  }
  const auto engine = MakePuller(GetParam());
  std::string address = "127.0.0.1:0";
  wire::Descriptor stale;
  for (size_t i = 0; i < gateways.size(); ++i) {
    ASSERT_EQ(gateways[i]->Ask("start", address), "ok");
    const wire::Descriptor d = Decoded(gateways[i]->Ask("small"));
    address = std::get<wire::NetWay>(d.ways[0]).addresses[0].ToString();
    const absl::Status status = Pull(*engine, d);
    EXPECT_TRUE(status.ok()) << status;
    if (i > 0) {
      EXPECT_EQ(ReasonOf(Pull(*engine, stale)), Reason::kWrongInstance);
    }
    stale = d;
    gateways[i]->Kill();
  }
}

// Some of its bytes are the old lease's then, and some another's.
TEST_F(UcxProcessTest, ALeaseThatEndsWhileItIsFetchedSlowlyIsNeverMixed) {
  constexpr uint64_t kBytes = 16 << 20;  // more than the sockets' buffers hold
  ChildProcess worker([] { return MakeSlowWorkerProcess(); });
  UcxGateway gateway(*UcxForTest(), {.arena_bytes = 40 * kBytes},
                     {.ucx = {.get = UcxGet::kEvenEmulated}, .listen = AnyPort()});
  bool ended = false;
  // It may have had all of it before it stopped.
  for (int attempt = 0; !ended && attempt < 40; ++attempt) {
    const PublishedLease lease = gateway.leases.Add(kBytes);
    const std::string whole = Digest(gateway.leases.BytesOf(lease));
    worker.Tell("fetch", Encoded(gateway.DescriptorOf(lease)));
    worker.WaitUntilStopped();
    gateway.leases.Reuse(lease);
    worker.Continue();
    const std::string reason = worker.Hear();
    if (reason == "ok") {
      ASSERT_EQ(worker.Ask("digest"), whole);
      continue;
    }
    ASSERT_EQ(reason, "lease_ended");
    ended = worker.Ask("digest") != whole;
  }
  EXPECT_TRUE(ended) << "no pull was caught with bytes of both";
  const PublishedLease next = gateway.leases.Add(kSmall);
  worker.Tell("fetch", Encoded(gateway.DescriptorOf(next)));
  worker.WaitUntilStopped();
  worker.Continue();
  EXPECT_EQ(worker.Hear(), "ok");
}

TEST_F(UcxProcessTest, AWorkerKilledInMidTransferIsForgotten) {
  ChildProcess worker([] { return MakeWorkerProcess(hours(1)); });
  ChildProcess bystander([] { return MakeWorkerProcess(hours(1)); });
  Gateway gateway(1, {.listen = AnyPort(), .answer_timeout = hours(1)});
  ASSERT_EQ(worker.Ask("begin", Encoded(gateway.DescriptorOf(gateway.large))), "begun");
  worker.Kill();
  EXPECT_TRUE(gateway.Unpinned());
  ASSERT_EQ(bystander.Ask("begin", Encoded(gateway.DescriptorOf(gateway.large))), "begun");
}

TEST_F(UcxProcessTest, AWorkerStoppedInMidTransferIsCutOffAtItsDeadline) {
  ChildProcess worker([] { return MakeWorkerProcess(seconds(2)); });
  Gateway gateway(1, {.listen = AnyPort(), .answer_timeout = hours(1)});
  ASSERT_EQ(worker.Ask("begin", Encoded(gateway.DescriptorOf(gateway.large))), "begun");
  worker.Stop();
  EXPECT_TRUE(gateway.Unpinned());
}

}  // namespace
}  // namespace tensorferry::engine
