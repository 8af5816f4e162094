// Both sides of engine/ucx together, over UCX's tcp in one process.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tensorferry/base/error.h"
#include "tensorferry/engine/ucx/ucx_testing.h"

namespace tensorferry::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kEager = uint64_t{64} << 10;
constexpr uint64_t kLarge = uint64_t{64} << 20;

Instant In(Duration d) { return SaturatingAdd(RealClock().Now(), d); }
std::string Text(const absl::Status& status) { return std::string(status.message()); }

class UcxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ucx_ = UcxForTest();
    if (!ucx_) GTEST_SKIP() << kNoUcx;
    UsePuller({});
  }

  void UsePuller(const UcxPullOptions& options) {
    auto puller = ucx_->CreatePull(options);
    ASSERT_TRUE(puller.ok()) << puller.status();
    puller_ = *std::move(puller);
  }

  absl::Status Pull(const wire::Descriptor& d, std::span<std::byte> into,
                    Instant deadline = kNever) {
    const auto op = puller_->Start(
        {.descriptor = &d, .offset = 0, .length = into.size(), .into = into, .deadline = deadline});
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
  void ExpectArrives(const UcxGateway& gateway, const PublishedLease& lease) {
    std::vector<std::byte> buffer(lease.nbytes + 128, std::byte{0xee});
    const std::span<std::byte> into = std::span(buffer).subspan(64, lease.nbytes);
    const absl::Status status = Pull(gateway.DescriptorOf(lease), into);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(std::ranges::equal(into, gateway.leases.BytesOf(lease))) << lease.nbytes;
    const auto untouched = [](std::byte b) { return b == std::byte{0xee}; };
    EXPECT_TRUE(std::all_of(buffer.begin(), buffer.begin() + 64, untouched));
    EXPECT_TRUE(std::all_of(buffer.end() - 64, buffer.end(), untouched));
  }

  std::shared_ptr<const UcxModule> ucx_;
  std::unique_ptr<PullEngine> puller_;
};

TEST_F(UcxTest, BytesOfAnySizeArrive) {
  UcxGateway gateway(*ucx_, {.arena_bytes = 128 << 20});
  for (const uint64_t size : {uint64_t{0}, uint64_t{1}, uint64_t{95}, uint64_t{8191}, kEager,
                              kEager + 1, uint64_t{1} << 20, uint64_t{9} << 20, kLarge}) {
    ExpectArrives(gateway, gateway.leases.Add(size));
  }
  EXPECT_TRUE(gateway.Unpinned());
}

TEST_F(UcxTest, ARangeArrives) {
  UcxGateway gateway(*ucx_, {});
  const PublishedLease lease = gateway.leases.Add(500000);
  const wire::Descriptor d = gateway.DescriptorOf(lease);
  for (const uint64_t length : {uint64_t{100}, uint64_t{400000}}) {
    std::vector<std::byte> into(length);
    const auto op =
        puller_->Start({.descriptor = &d, .offset = 333, .length = length, .into = into});
    ASSERT_TRUE(DriveOp(*op).ok());
    EXPECT_TRUE(std::ranges::equal(into, gateway.leases.BytesOf(lease).subspan(333, length)));
  }
}

// Over a network IPv6 is tested between two hosts (tests/command/test_two_hosts.py): UCX 1.13 uses no
// IPv6 address of the loopback interface, and must say so instead of crashing.
TEST_F(UcxTest, IPv6OnLoopbackWorksOrSaysWhy) {
  auto engine = ucx_->CreateExport({.listen = *SocketAddress::Parse("[::1]:0")});
  if (engine.ok()) {
    UcxGateway gateway(*ucx_, {}, {.listen = *SocketAddress::Parse("[::1]:0")});
    return ExpectArrives(gateway, gateway.leases.Add(1000));
  }
  EXPECT_EQ(ReasonOf(engine.status()), Reason::kLaneOff) << engine.status();
  EXPECT_THAT(Text(engine.status()), HasSubstr("on devices lo over IPv6"));
  const auto wildcard = ucx_->CreateExport({.ucx = {.trusted_network = true},
                                            .listen = *SocketAddress::Parse("[::]:0"),
                                            .advertise = {*SocketAddress::Parse("[fd00::1]:0")}});
  EXPECT_EQ(ReasonOf(wildcard.status()), Reason::kBadAddress) << wildcard.status();
}

TEST_F(UcxTest, AGatewayTellsByWhichWaysItsReadersCome) {
  UcxGateway gateway(*ucx_, {});
  EXPECT_EQ(gateway.engine->DescribeReaders(), "");
  ExpectArrives(gateway, gateway.leases.Add(1 << 20));
  EXPECT_THAT(gateway.engine->DescribeReaders(), HasSubstr("tcp/lo"));
}

// Of UCX's own sockets over tcp, which listen beside ours.
std::vector<int> ListeningPorts() {
  std::vector<int> ports;
  std::ifstream table("/proc/self/net/tcp");
  std::string line;
  while (std::getline(table, line)) {
    unsigned port = 0, state = 0;
    if (std::sscanf(line.c_str(), " %*d: %*8x:%4x %*8x:%*4x %2x", &port, &state) != 2) continue;
    if (state == 0x0a) ports.push_back(static_cast<int>(port));
  }
  return ports;
}

TEST_F(UcxTest, ThePortRangeIsKept) {
  const auto within = [](int port) { return port >= 21000 && port <= 21999; };
  const auto count = [&] { return std::ranges::count_if(ListeningPorts(), within); };
  const auto before = count();
  UsePuller({.ucx = {.port_range = "21000-21999"}});
  EXPECT_GT(count(), before);
  UcxGateway gateway(
      *ucx_, {},
      {.ucx = {.port_range = "21000-21999"}, .listen = *SocketAddress::Parse("127.0.0.1:0")});
  EXPECT_GT(count(), before + 1);
  ExpectArrives(gateway, gateway.leases.Add(1 << 20));
}

TEST_F(UcxTest, ManyPullsOnOneThread) {
  UcxGateway gateway(*ucx_, {.arena_bytes = 64 << 20});
  std::vector<PublishedLease> published;
  std::vector<std::unique_ptr<UcxTransfer>> transfers;
  std::vector<std::unique_ptr<PullOp>> ops;
  for (int i = 0; i < 64; ++i) {
    published.push_back(gateway.leases.Add(i % 8 == 0 ? 2 << 20 : 60000 + i * 100));
    transfers.push_back(
        std::make_unique<UcxTransfer>(*puller_, gateway.DescriptorOf(published.back())));
    ops.push_back(std::move(transfers.back()->op));
  }
  const auto results = DriveOps(ops);
  for (size_t i = 0; i < published.size(); ++i) {
    EXPECT_TRUE(results[i].ok()) << results[i].status();
    EXPECT_TRUE(std::ranges::equal(transfers[i]->into, gateway.leases.BytesOf(published[i])));
  }
}

TEST_F(UcxTest, ManyThreadsAndSeveralGateways) {
  UcxGateway a(*ucx_, {.instance = 1}), b(*ucx_, {.instance = 2});
  const PublishedLease of_a = a.leases.Add(1000), of_b = b.leases.Add(200000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 25; ++i) {
        ExpectArrives(a, of_a);
        ExpectArrives(b, of_b);
      }
    });
  }
  for (std::thread& t : threads) t.join();
}

TEST_F(UcxTest, OnlyReadersThatAreCountedSayThatTheyAreDone) {
  UcxGateway gateway(*ucx_, {});
  ExpectArrives(gateway, gateway.leases.Add(1000));
  const PublishedLease counted = gateway.leases.Add(1000);
  wire::Descriptor d = gateway.DescriptorOf(counted);
  d.wants_done = true;
  std::vector<std::byte> into(1000);
  ASSERT_TRUE(Pull(d, into).ok());
  // What it still had to say has been heard when an engine has ended.
  puller_.reset();
  EXPECT_THAT(gateway.leases.done(), ElementsAre(counted.ref));
}

TEST_F(UcxTest, EveryRefusalArrivesTyped) {
  UcxGateway gateway(*ucx_, {});
  const PublishedLease lease = gateway.leases.Add(1000);
  const wire::Descriptor good = gateway.DescriptorOf(lease);
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
  gateway.leases.End(lease.ref);
  const absl::Status ended = Pull(good, into);
  EXPECT_EQ(ReasonOf(ended), Reason::kLeaseEnded);
  EXPECT_THAT(Text(ended), HasSubstr(gateway.engine->address().ToString()));
}

TEST_F(UcxTest, AnAbandonedPullUnpinsAndDisturbsNobody) {
  UcxGateway gateway(*ucx_, {.arena_bytes = kLarge + (1 << 20)});
  const PublishedLease large = gateway.leases.Add(kLarge);
  const PublishedLease small = gateway.leases.Add(1000);
  const auto transfer = InMidTransfer(*puller_, gateway.DescriptorOf(large));
  ASSERT_NE(transfer, nullptr);
  transfer->op.reset();
  std::ranges::fill(transfer->into, std::byte{0});
  EXPECT_TRUE(gateway.Unpinned());
  ExpectArrives(gateway, small);
  EXPECT_TRUE(std::ranges::all_of(transfer->into, [](std::byte b) { return b == std::byte{0}; }));
}

TEST_F(UcxTest, SiblingsOfAnAbandonedPullArrive) {
  UcxGateway gateway(*ucx_, {.arena_bytes = 3 * kLarge});
  const PublishedLease given_up = gateway.leases.Add(kLarge);
  const PublishedLease siblings[] = {gateway.leases.Add(1000), gateway.leases.Add(kLarge)};
  bool caught = false;
  for (const Instant end = In(kTestLimit); !caught && RealClock().Now() < end;) {
    UcxTransfer first(*puller_, gateway.DescriptorOf(given_up));
    std::vector<std::unique_ptr<UcxTransfer>> others;
    for (const PublishedLease& lease : siblings) {
      others.push_back(std::make_unique<UcxTransfer>(*puller_, gateway.DescriptorOf(lease)));
    }
    caught = first.Begin();
    first.op.reset();
    for (size_t i = 0; i < others.size(); ++i) {
      const absl::Status status = DriveOp(*others[i]->op).status();
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_TRUE(std::ranges::equal(others[i]->into, gateway.leases.BytesOf(siblings[i])));
    }
  }
  EXPECT_TRUE(caught);
  EXPECT_TRUE(gateway.Unpinned());
}

TEST_F(UcxTest, ARestartedGatewayIsReachedWithinThePull) {
  auto gateway = std::make_unique<UcxGateway>(*ucx_, FakeLeaseSource::Options{.instance = 1});
  const SocketAddress address = gateway->engine->address();
  const PublishedLease old = gateway->leases.Add(1000);
  ExpectArrives(*gateway, old);
  const wire::Descriptor stale = gateway->DescriptorOf(old);
  gateway.reset();

  UcxGateway after(*ucx_, {.instance = 2}, {.listen = address});
  ExpectArrives(after, after.leases.Add(1000));
  std::vector<std::byte> into(1000);
  EXPECT_EQ(ReasonOf(Pull(stale, into)), Reason::kWrongInstance);
}

TEST_F(UcxTest, AGatewayThatEndsInMidTransferIsAnError) {
  auto gateway =
      std::make_unique<UcxGateway>(*ucx_, FakeLeaseSource::Options{.arena_bytes = kLarge});
  // Ended while others wait behind it for their turn, so that some are not over.
  const wire::Descriptor d = gateway->DescriptorOf(gateway->leases.Add(kLarge));
  std::vector<std::unique_ptr<UcxTransfer>> transfers;
  for (int i = 0; i < 4; ++i) transfers.push_back(std::make_unique<UcxTransfer>(*puller_, d));
  ASSERT_TRUE(gateway->leases.WaitUntil([&] { return gateway->leases.opens() > 0; }));
  gateway.reset();
  for (const auto& transfer : transfers) {
    const absl::Status status = DriveOp(*transfer->op).status();
    // Those that had not begun were tried again.
    if (!status.ok()) {
      EXPECT_THAT(ReasonOf(status), AnyOf(Reason::kPeerClosed, Reason::kUnreachable)) << status;
    }
  }
  std::vector<std::byte> into(kLarge);
  const absl::Status after = Pull(d, into);
  EXPECT_EQ(ReasonOf(after), Reason::kUnreachable) << after;
  const absl::Status remembered = Pull(d, into);
  EXPECT_EQ(ReasonOf(remembered), Reason::kUnreachable) << remembered;
  EXPECT_TRUE(IsRetryable(remembered));
}

TEST_F(UcxTest, AddressesAreTriedInOrder) {
  auto gone = std::make_unique<UcxGateway>(*ucx_, FakeLeaseSource::Options{.instance = 7});
  const SocketAddress closed = gone->engine->address();
  gone.reset();
  UcxGateway stranger(*ucx_, {.instance = 1}), gateway(*ucx_, {.instance = 2});
  const PublishedLease lease = gateway.leases.Add(1000);
  const wire::Descriptor d = gateway.leases.DescriptorOf(
      lease, {wire::NetWay{wire::NetWay::Kind::kUcx,
                           {closed, stranger.engine->address(), gateway.engine->address()}}});
  std::vector<std::byte> into(1000);
  const absl::Status status = Pull(d, into);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(std::ranges::equal(into, gateway.leases.BytesOf(lease)));
}

TEST_F(UcxTest, ADeadlineThatHasPassedIsATimeout) {
  UcxGateway gateway(*ucx_, {});
  std::vector<std::byte> into(1000);
  const absl::Status status =
      Pull(gateway.DescriptorOf(gateway.leases.Add(1000)), into, In(milliseconds(-1)));
  EXPECT_EQ(ReasonOf(status), Reason::kTimedOut) << status;
  EXPECT_EQ(gateway.leases.opens(), 0u);
}

TEST_F(UcxTest, ACrowdedGatewayIsBusy) {
  UcxGateway gateway(*ucx_, {}, {.listen = *SocketAddress::Parse("127.0.0.1:0"), .max_readers = 1});
  const PublishedLease lease = gateway.leases.Add(1000);
  ExpectArrives(gateway, lease);
  const auto first = std::move(puller_);
  UsePuller({});
  std::vector<std::byte> into(1000);
  const absl::Status status = Pull(gateway.DescriptorOf(lease), into);
  EXPECT_EQ(ReasonOf(status), Reason::kBusy) << status;
}

// tests/peers/ucx_module.cc speaks UCX, and nonsense.
TEST_F(UcxTest, NonsenseOverUcxEndsItsEndpointAndDisturbsNobody) {
  const std::string path =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "tensorferry_ucx_module.so";
  void* const stranger = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(stranger, nullptr) << ::dlerror();
  const auto garble =
      reinterpret_cast<const char* (*)(int, int)>(::dlsym(stranger, "ucx_module_garble"));
  ASSERT_NE(garble, nullptr);
  std::mutex mutex;
  std::string log;
  UcxGateway gateway(*ucx_, {},
                     {.ucx = {.log =
                                  [&](LogLevel level, std::string_view line) {
                                    const std::lock_guard<std::mutex> lock(mutex);
                                    if (level == LogLevel::kWarning) log += line;
                                  }},
                      .listen = *SocketAddress::Parse("127.0.0.1:0")});
  const PublishedLease lease = gateway.leases.Add(1000);
  for (int form = 0; form < 4; ++form) {
    EXPECT_STREQ(garble(gateway.engine->address().port(), form), nullptr) << form;
    ExpectArrives(gateway, lease);
  }
  EXPECT_EQ(gateway.leases.opens(), 4u);
  EXPECT_TRUE(gateway.leases.WaitUntil([&] {
    const std::lock_guard<std::mutex> lock(mutex);
    return log.find("a request of 5 bytes, not 96") != std::string::npos;
  }));
}

TEST_F(UcxTest, CanTryNamesWhatIsWrong) {
  wire::Descriptor d;
  EXPECT_EQ(ReasonOf(puller_->CanTry(d)), Reason::kNoCommonWay);
  const auto at = [&](wire::NetWay::Kind kind, const char* address) {
    d.ways = {wire::NetWay{kind, {*SocketAddress::Parse(address)}}};
    return puller_->CanTry(d);
  };
  EXPECT_EQ(ReasonOf(at(wire::NetWay::Kind::kTcp, "127.0.0.1:9")), Reason::kNoCommonWay);
  EXPECT_EQ(ReasonOf(at(wire::NetWay::Kind::kUcx, "0.0.0.0:9")), Reason::kBadAddress);
  EXPECT_EQ(ReasonOf(at(wire::NetWay::Kind::kUcx, "10.0.0.1:9")), Reason::kNotAllowed);
  EXPECT_TRUE(at(wire::NetWay::Kind::kUcx, "127.0.0.1:9").ok());
  std::vector<std::byte> small(99);
  const auto op = puller_->Start({.descriptor = &d, .length = 100, .into = small});
  EXPECT_EQ(ReasonOf(DriveOp(*op).status()), Reason::kSizeMismatch);
}

TEST_F(UcxTest, WithoutTrustTcpStaysOnLoopback) {
  const auto outside = ucx_->CreateExport({.listen = *SocketAddress::Parse("192.0.2.1:0")});
  EXPECT_EQ(ReasonOf(outside.status()), Reason::kBadOption);
  EXPECT_THAT(Text(outside.status()), HasSubstr("--trusted-network"));
  EXPECT_THAT(Text(outside.status()), HasSubstr("write this process's memory"));
  const auto device = ucx_->CreatePull({.ucx = {.transports = "tcp", .devices = {"eth0"}}});
  EXPECT_EQ(ReasonOf(device.status()), Reason::kBadOption);
  EXPECT_THAT(Text(device.status()), HasSubstr("--trusted-network"));
  // Nor does a worker dial, allowed or not.
  UsePuller({.allow = *AllowList::Parse({"192.0.2.0/24"})});
  wire::Descriptor d;
  d.ways = {wire::NetWay{wire::NetWay::Kind::kUcx, {*SocketAddress::Parse("192.0.2.1:9")}}};
  const absl::Status dial = puller_->CanTry(d);
  EXPECT_EQ(ReasonOf(dial), Reason::kNotAllowed);
  EXPECT_THAT(Text(dial), HasSubstr("--trusted-network"));
  UsePuller({.ucx = {.trusted_network = true}, .allow = *AllowList::Parse({"192.0.2.0/24"})});
  EXPECT_TRUE(puller_->CanTry(d).ok());
}

TEST_F(UcxTest, WhatUcxWouldIgnoreIsRefused) {
  for (const UcxOptions& wrong : std::vector<UcxOptions>{{.transports = "tcp,,rc"},
                                                         {.transports = "tcp; rm"},
                                                         {.devices = {"eth0,eth1"}},
                                                         {.devices = {""}},
                                                         {.port_range = "3000"},
                                                         {.port_range = "0-10"},
                                                         {.port_range = "4000-3000"},
                                                         {.port_range = "1-2-3"},
                                                         {.port_range = "1-70000"}}) {
    EXPECT_EQ(ReasonOf(ucx_->CreatePull({.ucx = wrong}).status()), Reason::kBadOption)
        << wrong.transports << " " << wrong.port_range;
  }
  const auto unknown = ucx_->CreatePull({.ucx = {.transports = "warp"}});
  EXPECT_EQ(ReasonOf(unknown.status()), Reason::kLaneOff) << unknown.status();
  EXPECT_THAT(Text(unknown.status()), HasSubstr("warp"));
}

TEST_F(UcxTest, TakenAndForeignAddresses) {
  UcxGateway gateway(*ucx_, {});
  const auto taken = ucx_->CreateExport({.listen = gateway.engine->address()});
  EXPECT_EQ(ReasonOf(taken.status()), Reason::kAddressInUse) << taken.status();
  const auto wildcard = ucx_->CreateExport({.listen = *SocketAddress::Parse("0.0.0.0:0")});
  EXPECT_EQ(ReasonOf(wildcard.status()), Reason::kBadAddress) << wildcard.status();
  const auto foreign = ucx_->CreateExport(
      {.ucx = {.trusted_network = true}, .listen = *SocketAddress::Parse("192.0.2.1:0")});
  EXPECT_EQ(ReasonOf(foreign.status()), Reason::kBadAddress) << foreign.status();
}

}  // namespace
}  // namespace tensorferry::engine
