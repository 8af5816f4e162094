// Both sides of engine/tcp together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tensorferry/base/error.h"
#include "tensorferry/engine/engine_testing.h"
#include "tensorferry/engine/tcp/tcp_export_engine.h"
#include "tensorferry/engine/tcp/tcp_pull_engine.h"
#include "tensorferry/engine/tcp/tcp_testing.h"

namespace tensorferry::engine {
namespace {

using ::testing::ElementsAre;

constexpr uint64_t kSplit = (uint64_t{2} << 20) + 1;

std::unique_ptr<TcpExportEngine> Serve(FakeLeaseSource& leases,
                                       SocketAddress listen = AnyLoopbackPort()) {
  auto engine = TcpExportEngine::Create({.listen = listen});
  if (!engine.ok() || !(*engine)->Start(leases.arena(), &leases).ok()) return nullptr;
  return *std::move(engine);
}

class TcpTest : public ::testing::Test {
 protected:
  absl::Status Pull(const wire::Descriptor& d, std::span<std::byte> into) {
    const auto op =
        puller_->Start({.descriptor = &d, .offset = 0, .length = into.size(), .into = into});
    const absl::StatusOr<Landed> landed = DriveOp(*op);
    if (landed.ok()) {
      EXPECT_EQ(landed->bytes.data(), into.data());
      EXPECT_EQ(landed->bytes.size(), into.size());
      EXPECT_EQ(landed->hold, nullptr);
      op->Acknowledge();
    }
    return landed.status();
  }

  // Checks the bytes, and that none beside them was written.
  void ExpectArrives(const FakeLeaseSource& leases, const PublishedLease& lease,
                     const wire::Way& way) {
    std::vector<std::byte> buffer(lease.nbytes + 128, std::byte{0xee});
    const std::span<std::byte> into = std::span(buffer).subspan(64, lease.nbytes);
    const absl::Status status = Pull(leases.DescriptorOf(lease, {way}), into);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(std::ranges::equal(into, leases.BytesOf(lease))) << lease.nbytes;
    const auto untouched = [](std::byte b) { return b == std::byte{0xee}; };
    EXPECT_TRUE(std::all_of(buffer.begin(), buffer.begin() + 64, untouched));
    EXPECT_TRUE(std::all_of(buffer.end() - 64, buffer.end(), untouched));
  }

  std::unique_ptr<PullEngine> puller_ = CreateTcpPullEngine({});
};

TEST_F(TcpTest, BytesOfAnySizeArrive) {
  FakeLeaseSource leases({.arena_bytes = 32 << 20});
  const auto gateway = Serve(leases);
  for (const uint64_t size : {uint64_t{0}, uint64_t{1}, uint64_t{95}, uint64_t{65536}, kSplit - 1,
                              kSplit, kSplit + 4095, uint64_t{9} << 20}) {
    ExpectArrives(leases, leases.Add(size), gateway->way());
  }
  EXPECT_TRUE(leases.WaitUntil([&] { return leases.pins() == 0; }));
}

TEST_F(TcpTest, LargePullsComeInTwoHalves) {
  FakeLeaseSource leases({.arena_bytes = 32 << 20});
  const auto gateway = Serve(leases);
  ExpectArrives(leases, leases.Add(kSplit - 1), gateway->way());
  EXPECT_EQ(leases.opens(), 1u);
  ExpectArrives(leases, leases.Add(kSplit), gateway->way());
  EXPECT_EQ(leases.opens(), 3u);
}

TEST_F(TcpTest, TinySplitsDoNotProduceEmptyHalves) {
  FakeLeaseSource leases;
  const auto gateway = Serve(leases);
  puller_ = CreateTcpPullEngine({.split_bytes = 1});
  ExpectArrives(leases, leases.Add(0), gateway->way());
  ExpectArrives(leases, leases.Add(1), gateway->way());
  ExpectArrives(leases, leases.Add(8191), gateway->way());
  EXPECT_EQ(leases.opens(), 3u);
  ExpectArrives(leases, leases.Add(8192), gateway->way());
  EXPECT_EQ(leases.opens(), 5u);
}

TEST_F(TcpTest, ARangeArrives) {
  FakeLeaseSource leases;
  const auto gateway = Serve(leases);
  const PublishedLease lease = leases.Add(1000);
  const wire::Descriptor d = leases.DescriptorOf(lease, {gateway->way()});
  std::vector<std::byte> into(100);
  const auto op = puller_->Start({.descriptor = &d, .offset = 333, .length = 100, .into = into});
  ASSERT_TRUE(DriveOp(*op).ok());
  EXPECT_TRUE(std::ranges::equal(into, leases.BytesOf(lease).subspan(333, 100)));
}

TEST_F(TcpTest, IPv6) {
  FakeLeaseSource leases({.arena_bytes = 4 << 20});
  const auto gateway = Serve(leases, AnyLoopbackPortV6());
  ASSERT_NE(gateway, nullptr);
  ExpectArrives(leases, leases.Add(kSplit), gateway->way());
}

TEST_F(TcpTest, ManyPullsOnOneThread) {
  FakeLeaseSource leases({.arena_bytes = 64 << 20});
  const auto gateway = Serve(leases);
  std::vector<PublishedLease> published;
  std::vector<wire::Descriptor> descriptors;
  std::vector<std::vector<std::byte>> buffers;
  for (int i = 0; i < 64; ++i) {
    published.push_back(leases.Add(i % 8 == 0 ? kSplit : 100000 + i));
    descriptors.push_back(leases.DescriptorOf(published.back(), {gateway->way()}));
    buffers.emplace_back(published.back().nbytes);
  }
  std::vector<std::unique_ptr<PullOp>> ops;
  for (size_t i = 0; i < published.size(); ++i) {
    ops.push_back(puller_->Start({.descriptor = &descriptors[i],
                                  .offset = 0,
                                  .length = buffers[i].size(),
                                  .into = buffers[i]}));
  }
  const auto results = DriveOps(ops);
  for (size_t i = 0; i < published.size(); ++i) {
    EXPECT_TRUE(results[i].ok()) << results[i].status();
    EXPECT_TRUE(std::ranges::equal(buffers[i], leases.BytesOf(published[i])));
  }
}

TEST_F(TcpTest, OnlyReadersThatAreCountedSayThatTheyAreDone) {
  FakeLeaseSource leases({.arena_bytes = 16 << 20});
  const auto gateway = Serve(leases);
  const PublishedLease uncounted = leases.Add(1000);
  ExpectArrives(leases, uncounted, gateway->way());
  std::vector<wire::LeaseRef> expected;
  for (const uint64_t size : {uint64_t{1000}, kSplit}) {
    const PublishedLease lease = leases.Add(size);
    wire::Descriptor d = leases.DescriptorOf(lease, {gateway->way()});
    d.wants_done = true;
    std::vector<std::byte> into(size);
    ASSERT_TRUE(Pull(d, into).ok());
    expected.push_back(lease.ref);
    EXPECT_TRUE(leases.WaitUntil([&] { return leases.done().size() == expected.size(); }));
  }
  EXPECT_EQ(leases.done(), expected);
}

TEST_F(TcpTest, AResultThatIsNotAcknowledgedSaysNothing) {
  FakeLeaseSource leases;
  const auto gateway = Serve(leases);
  const PublishedLease lease = leases.Add(1000);
  wire::Descriptor d = leases.DescriptorOf(lease, {gateway->way()});
  d.wants_done = true;
  std::vector<std::byte> into(1000);
  {
    const auto op = puller_->Start({.descriptor = &d, .offset = 0, .length = 1000, .into = into});
    ASSERT_TRUE(DriveOp(*op).ok());
  }
  // The same connection, so a done would have come first.
  ASSERT_TRUE(Pull(d, into).ok());
  EXPECT_TRUE(leases.WaitUntil([&] { return !leases.done().empty(); }));
  EXPECT_THAT(leases.done(), ElementsAre(lease.ref));
}

TEST_F(TcpTest, EveryRefusalArrivesTyped) {
  FakeLeaseSource leases;
  const auto gateway = Serve(leases);
  const PublishedLease lease = leases.Add(1000);
  const wire::Descriptor good = leases.DescriptorOf(lease, {gateway->way()});
  std::vector<std::byte> into(1000);
  std::vector<std::byte> larger(1001);

  EXPECT_EQ(ReasonOf(Pull(good, larger)), Reason::kOutOfRange);
  wire::Descriptor d = good;
  d.lease.token[0] ^= 1;
  EXPECT_EQ(ReasonOf(Pull(d, into)), Reason::kBadToken);
  d = good;
  ++d.lease.generation;
  EXPECT_EQ(ReasonOf(Pull(d, into)), Reason::kLeaseEnded);
  d = good;
  d.instance[0] ^= 1;
  EXPECT_EQ(ReasonOf(Pull(d, into)), Reason::kWrongInstance);
  EXPECT_TRUE(Pull(good, into).ok());
  leases.End(lease.ref);
  EXPECT_EQ(ReasonOf(Pull(good, into)), Reason::kLeaseEnded);
}

TEST_F(TcpTest, ARefusalOfOneHalfEndsThePull) {
  FakeLeaseSource leases({.arena_bytes = 4 << 20});
  const auto gateway = Serve(leases);
  const PublishedLease lease = leases.Add(kSplit);
  std::vector<std::byte> larger(kSplit + 100);
  EXPECT_EQ(ReasonOf(Pull(leases.DescriptorOf(lease, {gateway->way()}), larger)),
            Reason::kOutOfRange);
  EXPECT_TRUE(leases.WaitUntil([&] { return leases.pins() == 0; }));
  ExpectArrives(leases, lease, gateway->way());
}

TEST_F(TcpTest, AnAbandonedPullUnpinsAndDisturbsNobody) {
  FakeLeaseSource leases({.arena_bytes = 65 << 20});
  const auto gateway = Serve(leases);
  const PublishedLease large = leases.Add(64 << 20);
  const PublishedLease small = leases.Add(1000);
  const wire::Descriptor d = leases.DescriptorOf(large, {gateway->way()});
  std::vector<std::byte> into(large.nbytes);
  auto op = puller_->Start({.descriptor = &d, .offset = 0, .length = into.size(), .into = into});
  while (into[0] != leases.BytesOf(large)[0] || into[7] != leases.BytesOf(large)[7]) {
    ASSERT_NE(op->Step(), PullOp::Progress::kDone);
  }
  ExpectArrives(leases, small, gateway->way());
  op.reset();
  EXPECT_TRUE(leases.WaitUntil([&] { return leases.pins() == 0; }));
  std::ranges::fill(into, std::byte{0});
  ExpectArrives(leases, small, gateway->way());
  EXPECT_TRUE(std::ranges::all_of(into, [](std::byte b) { return b == std::byte{0}; }));
}

TEST_F(TcpTest, ARestartedGatewayIsReachedWithinThePull) {
  FakeLeaseSource before({.instance = 1});
  auto gateway = Serve(before);
  const SocketAddress address = gateway->address();
  const PublishedLease old = before.Add(1000);
  ExpectArrives(before, old, gateway->way());
  const wire::Descriptor stale = before.DescriptorOf(old, {gateway->way()});
  gateway.reset();

  FakeLeaseSource after({.instance = 2});
  gateway = Serve(after, address);
  ASSERT_NE(gateway, nullptr);
  ExpectArrives(after, after.Add(1000), gateway->way());
  std::vector<std::byte> into(1000);
  EXPECT_EQ(ReasonOf(Pull(stale, into)), Reason::kWrongInstance);
}

TEST_F(TcpTest, AGatewayThatEndsInMidTransferIsAnError) {
  FakeLeaseSource leases({.arena_bytes = 64 << 20});
  auto gateway = Serve(leases);
  const PublishedLease large = leases.Add(64 << 20);
  const wire::Descriptor d = leases.DescriptorOf(large, {gateway->way()});
  std::vector<std::byte> into(large.nbytes);
  const auto op =
      puller_->Start({.descriptor = &d, .offset = 0, .length = into.size(), .into = into});
  while (into[0] != leases.BytesOf(large)[0] || into[7] != leases.BytesOf(large)[7]) {
    ASSERT_NE(op->Step(), PullOp::Progress::kDone);
  }
  gateway.reset();
  EXPECT_EQ(ReasonOf(DriveOp(*op).status()), Reason::kPeerClosed);
  EXPECT_EQ(ReasonOf(Pull(d, into)), Reason::kUnreachable);
}

TEST_F(TcpTest, SeveralGatewaysAtOnce) {
  FakeLeaseSource a({.instance = 1}), b({.instance = 2});
  const auto gateway_a = Serve(a);
  const auto gateway_b = Serve(b);
  const PublishedLease of_a = a.Add(1000);
  const PublishedLease of_b = b.Add(2000);
  for (int i = 0; i < 3; ++i) {
    ExpectArrives(a, of_a, gateway_a->way());
    ExpectArrives(b, of_b, gateway_b->way());
  }
}

}  // namespace
}  // namespace tensorferry::engine
