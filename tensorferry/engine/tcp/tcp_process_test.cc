// engine/tcp between two processes, of which one is killed or stopped in mid-transfer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/engine_testing.h"
#include "tensorferry/engine/local/local_testing.h"
#include "tensorferry/engine/tcp/tcp_export_engine.h"
#include "tensorferry/engine/tcp/tcp_pull_engine.h"
#include "tensorferry/engine/tcp/tcp_testing.h"

namespace tensorferry::engine {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr uint64_t kLarge = 64 << 20;  // more than the sockets' buffers hold
constexpr uint64_t kSmall = 1000;

struct Gateway {
  FakeLeaseSource leases;
  PublishedLease large = leases.Add(kLarge);
  PublishedLease small = leases.Add(kSmall);
  std::unique_ptr<TcpExportEngine> engine;

  Gateway(uint8_t instance, TcpExportOptions options)
      : leases({.arena_bytes = kLarge + (1 << 20), .instance = instance}) {
    auto created = TcpExportEngine::Create(options);
    if (!created.ok() || !(*created)->Start(leases.arena(), &leases).ok()) return;
    engine = *std::move(created);
  }

  wire::Descriptor DescriptorOf(const PublishedLease& lease) const {
    return leases.DescriptorOf(lease, {engine->way()});
  }
  bool Unpinned() const {
    return leases.WaitUntil([this] { return leases.pins() == 0; });
  }
};

// A gateway for a process of its own. Verbs: large, small → descriptor; unpinned → yes, once it is.
ChildProcess::Handler MakeGateway(uint8_t instance, SocketAddress listen) {
  auto gateway = std::make_shared<Gateway>(instance, TcpExportOptions{.listen = listen});
  return [gateway](std::string_view verb, std::string_view) -> std::string {
    if (gateway->engine == nullptr) return "cannot listen";
    if (verb == "large") return Encoded(gateway->DescriptorOf(gateway->large));
    if (verb == "small") return Encoded(gateway->DescriptorOf(gateway->small));
    return gateway->Unpinned() ? "yes" : "no";
  };
}

// One pull that can be left lying in the middle.
struct Transfer {
  Transfer(PullEngine& engine, const wire::Descriptor& d, Instant deadline)
      : descriptor(d), into(d.nbytes) {
    op = engine.Start({.descriptor = &descriptor,
                       .offset = 0,
                       .length = into.size(),
                       .into = into,
                       .deadline = deadline});
  }
  // Until the first bytes are there, and some of the rest is not.
  bool Begin() {
    while (std::all_of(into.begin(), into.begin() + 64,
                       [](std::byte b) { return b == std::byte{0}; })) {
      if (op->Step() == PullOp::Progress::kDone) return false;
    }
    return true;
  }

  wire::Descriptor descriptor;
  std::vector<std::byte> into;
  std::unique_ptr<PullOp> op;
};

// A worker for a process of its own. Verb: begin D → begins to pull with `limit` and then does
// nothing.
ChildProcess::Handler MakeIdleWorker(Duration limit) {
  auto engine = std::shared_ptr<PullEngine>(CreateTcpPullEngine({}));
  auto transfer = std::make_shared<std::unique_ptr<Transfer>>();
  return [=](std::string_view, std::string_view descriptor) -> std::string {
    *transfer = std::make_unique<Transfer>(*engine, Decoded(descriptor),
                                           SaturatingAdd(RealClock().Now(), limit));
    return (*transfer)->Begin() ? "begun" : "done";
  };
}

absl::Status Pull(PullEngine& engine, const wire::Descriptor& d) {
  Transfer transfer(engine, d, kNever);
  return DriveOp(*transfer.op).status();
}

TEST(TcpProcessTest, AGatewayKilledInMidTransferIsAnErrorAndThenUnreachable) {
  ChildProcess gateway([] { return MakeGateway(1, AnyLoopbackPort()); });
  const auto engine = CreateTcpPullEngine({});
  Transfer transfer(*engine, Decoded(gateway.Ask("large")), kNever);
  ASSERT_TRUE(transfer.Begin());
  gateway.Kill();
  const absl::Status status = DriveOp(*transfer.op).status();
  EXPECT_EQ(ReasonOf(status), Reason::kPeerClosed) << status;
  EXPECT_EQ(ReasonOf(Pull(*engine, transfer.descriptor)), Reason::kUnreachable);
}

TEST(TcpProcessTest, AGatewayStoppedInMidTransferTimesOut) {
  ChildProcess gateway([] { return MakeGateway(1, AnyLoopbackPort()); });
  const auto engine = CreateTcpPullEngine({});
  const wire::Descriptor small = Decoded(gateway.Ask("small"));
  Transfer transfer(*engine, Decoded(gateway.Ask("large")),
                    SaturatingAdd(RealClock().Now(), seconds(3)));
  ASSERT_TRUE(transfer.Begin());
  gateway.Stop();
  const absl::Status status = DriveOp(*transfer.op).status();
  EXPECT_EQ(ReasonOf(status), Reason::kTimedOut) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(StrCat("of ", kLarge, " bytes")));
  gateway.Continue();
  EXPECT_EQ(gateway.Ask("unpinned"), "yes");
  EXPECT_TRUE(Pull(*engine, small).ok());
}

TEST(TcpProcessTest, AGatewayKilledAndStartedAgainIsReachedWithinThePull) {
  const auto engine = CreateTcpPullEngine({});
  SocketAddress address = AnyLoopbackPort();
  wire::Descriptor stale;
  for (uint8_t instance = 1; instance <= 5; ++instance) {
    ChildProcess gateway([&] { return MakeGateway(instance, address); });
    const wire::Descriptor d = Decoded(gateway.Ask("small"));
    address = std::get<wire::NetWay>(d.ways[0]).addresses[0];
    const absl::Status status = Pull(*engine, d);
    EXPECT_TRUE(status.ok()) << status;
    if (instance > 1) {
      EXPECT_EQ(ReasonOf(Pull(*engine, stale)), Reason::kWrongInstance);
    }
    stale = d;
    gateway.Kill();
  }
}

TEST(TcpProcessTest, AWorkerKilledInMidTransferIsForgotten) {
  ChildProcess worker([] { return MakeIdleWorker(hours(1)); });
  Gateway gateway(1, {.listen = AnyLoopbackPort(), .stall_timeout = hours(1)});
  ASSERT_EQ(worker.Ask("begin", Encoded(gateway.DescriptorOf(gateway.large))), "begun");
  EXPECT_GE(gateway.leases.pins(), 1);
  worker.Kill();
  EXPECT_TRUE(gateway.Unpinned());
}

TEST(TcpProcessTest, AWorkerStoppedInMidTransferIsCutOffAtItsDeadline) {
  ChildProcess worker([] { return MakeIdleWorker(seconds(2)); });
  Gateway gateway(1, {.listen = AnyLoopbackPort(), .stall_timeout = hours(1)});
  ASSERT_EQ(worker.Ask("begin", Encoded(gateway.DescriptorOf(gateway.large))), "begun");
  worker.Stop();
  EXPECT_TRUE(gateway.Unpinned());
}

TEST(TcpProcessTest, AWorkerStoppedInMidTransferIsCutOffWhenItStalls) {
  ChildProcess worker([] { return MakeIdleWorker(hours(1)); });
  Gateway gateway(1, {.listen = AnyLoopbackPort(), .stall_timeout = seconds(1)});
  ASSERT_EQ(worker.Ask("begin", Encoded(gateway.DescriptorOf(gateway.large))), "begun");
  worker.Stop();
  EXPECT_TRUE(gateway.Unpinned());
}

}  // namespace
}  // namespace tensorferry::engine
