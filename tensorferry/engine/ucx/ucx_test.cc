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
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/tcp/tcp_testing.h"
#include "tensorferry/engine/ucx/ucx_testing.h"

namespace tensorferry::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kEager = uint64_t{64} << 10;
constexpr uint64_t kLarge = uint64_t{64} << 20;  // more than the sockets' buffers hold

Instant In(Duration d) { return SaturatingAdd(RealClock().Now(), d); }
std::string Text(const absl::Status& status) { return std::string(status.message()); }

INSTANTIATE_TEST_SUITE_P(, UcxPullTest, ::testing::Values(UcxGet::kOff, UcxGet::kEvenEmulated),
                         [](const auto& mode) {
                           return mode.param == UcxGet::kOff ? "Asked" : "Get";
                         });

TEST_P(UcxPullTest, BytesOfAnySizeArrive) {
  UcxGateway gateway(*ucx_, {.arena_bytes = 128 << 20}, Options());
  for (const uint64_t size : {uint64_t{0}, uint64_t{1}, uint64_t{95}, uint64_t{8191}, kEager,
                              kEager + 1, uint64_t{1} << 20, uint64_t{9} << 20, kLarge}) {
    ExpectArrives(gateway, gateway.leases.Add(size));
  }
  EXPECT_TRUE(gateway.Unpinned());
}

TEST_P(UcxPullTest, ARangeArrives) {
  UcxGateway gateway(*ucx_, {}, Options());
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

// Of this process: UCX's own sockets over tcp listen beside ours.
std::vector<int> ListeningPorts() {
  std::set<std::string> ours;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    ours.insert(std::filesystem::read_symlink(entry.path(), gone).string());
  }
  std::vector<int> ports;
  std::ifstream table("/proc/self/net/tcp");
  std::string line;
  while (std::getline(table, line)) {
    unsigned port = 0, state = 0;
    unsigned long inode = 0;
    if (std::sscanf(line.c_str(), " %*d: %*8x:%4x %*8x:%*4x %2x %*s %*s %*s %*u %*u %lu", &port,
                    &state, &inode) != 3) {
      continue;
    }
    if (state == 0x0a && ours.contains(StrCat("socket:[", inode, "]"))) {
      ports.push_back(static_cast<int>(port));
    }
  }
  return ports;
}

TEST_P(UcxPullTest, ThePortRangeIsKept) {
  const auto within = [](int port) { return port >= 21000 && port <= 21999; };
  const auto count = [&] { return std::ranges::count_if(ListeningPorts(), within); };
  const auto before = count();
  UsePuller({.ucx = {.port_range = "21000-21999"}});
  EXPECT_GT(count(), before);
  UcxGateway gateway(*ucx_, {}, Options({.ucx = {.port_range = "21000-21999"}}));
  EXPECT_GT(count(), before + 1);
  ExpectArrives(gateway, gateway.leases.Add(1 << 20));
}

TEST_P(UcxPullTest, ManyPullsOnOneThread) {
  UcxGateway gateway(*ucx_, {.arena_bytes = 64 << 20}, Options());
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

TEST_P(UcxPullTest, ManyThreadsAndSeveralGateways) {
  UcxGateway a(*ucx_, {.instance = 1}, Options()), b(*ucx_, {.instance = 2}, Options());
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

TEST_P(UcxPullTest, OnlyReadersThatAreCountedSayThatTheyAreDone) {
  UcxGateway gateway(*ucx_, {}, Options());
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

TEST_P(UcxPullTest, EveryRefusalArrivesTyped) {
  UcxGateway gateway(*ucx_, {}, Options());
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
  UcxGateway gateway(*ucx_, {.arena_bytes = kLarge + (1 << 20)}, Options());
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
  UcxGateway gateway(*ucx_, {.arena_bytes = 3 * kLarge}, Options());
  const PublishedLease given_up = gateway.leases.Add(kLarge);
  const PublishedLease siblings[] = {gateway.leases.Add(1000), gateway.leases.Add(kLarge)};
  bool caught = false;
  for (const Instant end = In(kTestLimit); !caught && RealClock().Now() < end;) {
    UcxTransfer first(gateway.DescriptorOf(given_up));
    std::vector<std::unique_ptr<UcxTransfer>> others;
    for (const PublishedLease& lease : siblings) {
      others.push_back(std::make_unique<UcxTransfer>(gateway.DescriptorOf(lease)));
    }
    first.Start(*puller_);
    for (const auto& other : others) other->Start(*puller_);
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

TEST_P(UcxPullTest, ARestartedGatewayIsReachedWithinThePull) {
  auto gateway =
      std::make_unique<UcxGateway>(*ucx_, FakeLeaseSource::Options{.instance = 1}, Options());
  const SocketAddress address = gateway->engine->address();
  const PublishedLease old = gateway->leases.Add(1000);
  ExpectArrives(*gateway, old);
  const wire::Descriptor stale = gateway->DescriptorOf(old);
  gateway.reset();

  UcxGateway after(*ucx_, {.instance = 2}, Options({.listen = address}));
  ExpectArrives(after, after.leases.Add(1000));
  std::vector<std::byte> into(1000);
  EXPECT_EQ(ReasonOf(Pull(stale, into)), Reason::kWrongInstance);
}

TEST_F(UcxTest, AGatewayThatEndsInMidTransferIsAnError) {
  auto gateway = std::make_unique<UcxGateway>(
      *ucx_, FakeLeaseSource::Options{.arena_bytes = kLarge}, Options());
  // Ended while others wait behind it for their turn, so that some are not over.
  const wire::Descriptor d = gateway->DescriptorOf(gateway->leases.Add(kLarge));
  std::vector<std::unique_ptr<UcxTransfer>> transfers;
  for (int i = 0; i < 4; ++i) transfers.push_back(std::make_unique<UcxTransfer>(*puller_, d));
  ASSERT_TRUE(gateway->leases.WaitUntil([&] { return gateway->Reads() > 0; }));
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

TEST_P(UcxPullTest, AddressesAreTriedInOrder) {
  auto gone =
      std::make_unique<UcxGateway>(*ucx_, FakeLeaseSource::Options{.instance = 7}, Options());
  const SocketAddress closed = gone->engine->address();
  gone.reset();
  UcxGateway stranger(*ucx_, {.instance = 1}, Options());
  UcxGateway gateway(*ucx_, {.instance = 2}, Options());
  const PublishedLease lease = gateway.leases.Add(1000);
  const wire::Descriptor d = gateway.leases.DescriptorOf(
      lease, {wire::NetWay{wire::NetWay::Kind::kUcx,
                           {closed, stranger.engine->address(), gateway.engine->address()}}});
  std::vector<std::byte> into(1000);
  const absl::Status status = Pull(d, into);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(std::ranges::equal(into, gateway.leases.BytesOf(lease)));
}

// Of several addresses the next is tried in time; of one alone the error says that it is silent.
TEST_F(UcxTest, AnAddressThatSwallowsPacketsIsGivenUp) {
  UsePuller({.connect_timeout = milliseconds(300)});
  const BlackHole hole;
  UcxGateway gateway(*ucx_, {}, Options());
  const PublishedLease lease = gateway.leases.Add(1000);
  wire::NetWay way{wire::NetWay::Kind::kUcx, {hole.address()}};
  std::vector<std::byte> into(1000);
  const absl::Status silent = Pull(gateway.leases.DescriptorOf(lease, {way}), into);
  EXPECT_EQ(ReasonOf(silent), Reason::kUnreachable) << silent;
  EXPECT_THAT(Text(silent), HasSubstr(hole.address().ToString()));
  // Anew: the first one is remembered.
  UsePuller({.connect_timeout = seconds(60)});
  const absl::Status late =
      Pull(gateway.leases.DescriptorOf(lease, {way}), into, In(milliseconds(200)));
  EXPECT_EQ(ReasonOf(late), Reason::kTimedOut) << late;
  EXPECT_THAT(Text(late), HasSubstr("while connecting"));
  way.addresses.push_back(gateway.engine->address());
  const absl::Status moved_on =
      Pull(gateway.leases.DescriptorOf(lease, {way}), into, In(seconds(10)));
  EXPECT_TRUE(moved_on.ok()) << moved_on;
  EXPECT_TRUE(std::ranges::equal(into, gateway.leases.BytesOf(lease)));
}

TEST_P(UcxPullTest, ADeadlineThatHasPassedIsATimeout) {
  UcxGateway gateway(*ucx_, {}, Options());
  std::vector<std::byte> into(1000);
  const absl::Status status =
      Pull(gateway.DescriptorOf(gateway.leases.Add(1000)), into, In(milliseconds(-1)));
  EXPECT_EQ(ReasonOf(status), Reason::kTimedOut) << status;
  EXPECT_EQ(gateway.Reads(), 0u);
}

TEST_P(UcxPullTest, ACrowdedGatewayIsBusy) {
  UcxGateway gateway(*ucx_, {}, Options({.max_readers = 1}));
  const PublishedLease lease = gateway.leases.Add(1000);
  ExpectArrives(gateway, lease);
  const auto first = std::move(puller_);
  UsePuller({});
  std::vector<std::byte> into(1000);
  const absl::Status status = Pull(gateway.DescriptorOf(lease), into);
  EXPECT_EQ(ReasonOf(status), Reason::kBusy) << status;
}

TEST_P(UcxPullTest, AReaderThatLeavesMakesRoomForAnother) {
  UcxGateway gateway(*ucx_, {}, Options({.max_readers = 1}));
  const PublishedLease lease = gateway.leases.Add(1000);
  std::vector<std::byte> into(1000);
  for (int i = 0; i < 3; ++i) {
    UsePuller({});
    // That the one before has gone is told to nobody.
    EXPECT_TRUE(
        gateway.leases.WaitUntil([&] { return Pull(gateway.DescriptorOf(lease), into).ok(); }));
  }
}

TEST_P(UcxPullTest, ADeviceThatIsNamedIsUsedAndNoOther) {
  UsePuller({.ucx = {.devices = {"lo"}}});
  UcxGateway gateway(*ucx_, {}, Options({.ucx = {.devices = {"lo"}}}));
  ExpectArrives(gateway, gateway.leases.Add(200000));
  UcxOptions absent = {.devices = {"absent0"}, .trusted_network = true, .get = get()};
  const auto refused = ucx_->CreatePull({.ucx = absent});
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kLaneOff) << refused.status();
  EXPECT_THAT(Text(refused.status()), HasSubstr("absent0"));
}

TEST_P(UcxPullTest, AdvertisesTheBoundPortOnTheNamedAddresses) {
  UcxGateway gateway(*ucx_, {},
                     Options({.advertise = {*SocketAddress::Parse("127.0.0.1:0"),
                                            *SocketAddress::Parse("192.0.2.7:99")}}));
  const auto way = std::get<wire::NetWay>(gateway.engine->way());
  EXPECT_EQ(way.one_sided, get() != UcxGet::kOff);
  ASSERT_EQ(way.addresses.size(), 2u);
  EXPECT_EQ(way.addresses[0], gateway.engine->address());
  EXPECT_EQ(way.addresses[1].ToString(), "192.0.2.7:99");
  ExpectArrives(gateway, gateway.leases.Add(1000));
}

TEST_P(UcxPullTest, AnEngineThatWasNeverStartedGoesQuietly) {
  const auto engine = ucx_->CreateExport(Options());
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_NE((*engine)->address().port(), 0);
}

// tests/peers/ucx_module.cc speaks UCX, and nonsense.
TEST_P(UcxPullTest, NonsenseOverUcxEndsItsEndpointAndDisturbsNobody) {
  const std::string path =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "tensorferry_ucx_module.so";
  void* const stranger = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(stranger, nullptr) << ::dlerror();
  const auto garble =
      reinterpret_cast<const char* (*)(int, int)>(::dlsym(stranger, "ucx_module_garble"));
  ASSERT_NE(garble, nullptr);
  std::mutex mutex;
  std::string log;
  UcxGateway gateway(*ucx_, {}, Options({.ucx = {.log = [&](LogLevel level, std::string_view line) {
                                           const std::lock_guard<std::mutex> lock(mutex);
                                           if (level == LogLevel::kWarning) log += line;
                                         }}}));
  const PublishedLease lease = gateway.leases.Add(1000);
  for (int form = 0; form < 4; ++form) {
    EXPECT_STREQ(garble(gateway.engine->address().port(), form), nullptr) << form;
    ExpectArrives(gateway, lease);
  }
  EXPECT_EQ(gateway.Reads(), 4u);
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
  for (const char* transports : {"tcp", "rc,tcp:aux", "all", "^rc"}) {
    const auto device = ucx_->CreatePull({.ucx = {.transports = transports, .devices = {"eth0"}}});
    EXPECT_EQ(ReasonOf(device.status()), Reason::kBadOption) << transports;
    EXPECT_THAT(Text(device.status()), HasSubstr("--trusted-network"));
  }
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

TEST_F(UcxTest, GetIsForCardsThatRead) {
  for (const UcxOptions& emulated :
       std::vector<UcxOptions>{{.get = UcxGet::kOn},
                               {.transports = "rc,tcp", .get = UcxGet::kOn},
                               {.transports = "^rc", .get = UcxGet::kOn},
                               {.transports = "ud", .get = UcxGet::kOn}}) {
    const auto refused = ucx_->CreatePull({.ucx = emulated});
    EXPECT_EQ(ReasonOf(refused.status()), Reason::kBadOption) << emulated.transports;
    EXPECT_THAT(Text(refused.status()), HasSubstr("--ucx-get"));
    EXPECT_EQ(ReasonOf(ucx_->CreateExport(
                               {.ucx = emulated, .listen = *SocketAddress::Parse("127.0.0.1:0")})
                           .status()),
              Reason::kBadOption);
  }
  // What there is no card for here.
  const auto absent = ucx_->CreatePull({.ucx = {.transports = "rc,ud", .get = UcxGet::kOn}});
  EXPECT_EQ(ReasonOf(absent.status()), Reason::kLaneOff) << absent.status();
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
  UcxGateway gateway(*ucx_, {}, Options());
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
