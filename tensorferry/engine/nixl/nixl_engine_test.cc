// Both ends of engine/nixl with the real library: the gateway's agent in a process of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tensorferry/base/error.h"
#include "tensorferry/base/poll.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/engine_testing.h"
#include "tensorferry/engine/local/local_testing.h"
#include "tensorferry/engine/nixl/nixl_agent.h"
#include "tensorferry/engine/nixl/nixl_agent_process.h"
#include "tensorferry/engine/nixl/nixl_export_engine.h"
#include "tensorferry/engine/nixl/nixl_handshake.h"
#include "tensorferry/engine/nixl/nixl_pull_engine.h"
#include "tensorferry/engine/nixl/nixl_testing.h"
#include "tensorferry/metrics/metrics_testing.h"
#include "tensorferry/wire/frame.h"

namespace tensorferry::engine {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using Progress = PullOp::Progress;

Instant Now() { return RealClock().Now(); }

// The children of this process that are agents.
std::vector<pid_t> AgentPids() {
  std::vector<pid_t> out;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream stat(entry.path() / "stat");
    std::string pid, comm, state;
    pid_t parent = 0;
    stat >> pid >> comm >> state >> parent;
    if (parent == ::getpid() && comm == "(tensorferry-nix)" && state != "Z") {
      out.push_back(static_cast<pid_t>(std::stol(name)));
    }
  }
  return out;
}

size_t OpenSockets() {
  const std::filesystem::directory_iterator fds("/proc/self/fd");
  return static_cast<size_t>(std::count_if(begin(fds), end(fds), [](const auto& fd) {
    std::error_code gone;  // the folder's own
    return std::filesystem::read_symlink(fd, gone).string().starts_with("socket:");
  }));
}

class WithNixlEngine : public testing::Test {
 protected:
  static constexpr uint64_t kLanding = uint64_t{64} << 20;

  void SetUp() override {
    library_ = NixlForTest();
    if (!library_) GTEST_SKIP() << kNoNixl;
    landing_ = std::shared_ptr<std::byte>(
        static_cast<std::byte*>(
            ::mmap(nullptr, kLanding, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
        [](std::byte* at) { ::munmap(at, kLanding); });
    engine_ = MakePuller({});
  }

  std::unique_ptr<PullEngine> MakePuller(NixlPullOptions options) {
    options.metrics = metrics_;
    auto engine = CreateNixlPullEngine(library_, options);
    if (!engine.ok()) {
      ADD_FAILURE() << engine.status();
      std::abort();
    }
    (*engine)->UseLanding({landing_.get(), kLanding}, landing_);
    return *std::move(engine);
  }

  struct Gateway {
    std::unique_ptr<FakeLeaseSource> leases;
    std::unique_ptr<NixlExportEngine> engine;
  };
  Gateway MakeGateway(NixlExportOptions options = NixlExportOptionsForTest()) {
    options.metrics = metrics_;
    Gateway g;
    g.leases = std::make_unique<FakeLeaseSource>(
        FakeLeaseSource::Options{.arena_bytes = uint64_t{48} << 20});
    auto engine = NixlExportEngine::Create(options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    g.engine = *std::move(engine);
    const absl::Status started = g.engine->Start(g.leases->arena(), g.leases.get());
    EXPECT_TRUE(started.ok()) << started;
    return g;
  }

  // A lease with its frame, and the descriptor that a stock gateway would send.
  struct Offered {
    PublishedLease lease;
    wire::Descriptor descriptor;
    std::vector<std::byte> bytes;
  };
  static Offered Offer(Gateway& g, uint64_t nbytes) {
    Offered out;
    // Room for the frame around a payload.
    const PublishedLease room = g.leases->Add(nbytes + 128);
    out.lease = room;
    out.lease.payload_offset += 64;
    out.lease.nbytes = nbytes;
    std::byte* const payload = g.leases->arena().data + out.lease.payload_offset;
    out.bytes.assign(payload, payload + nbytes);
    wire::WriteFrameHeader(payload - 8, room.ref.generation);
    wire::WriteFrameTrailer(payload - 8, nbytes, room.ref.generation);
    g.engine->Publish(out.lease);
    wire::SmgDescriptor smg = std::get<wire::SmgDescriptor>(g.engine->way());
    smg.slot_addr += out.lease.payload_offset - 8;
    smg.gen = room.ref.generation;
    smg.key = static_cast<int64_t>(room.ref.generation);
    out.descriptor.nbytes = nbytes;
    out.descriptor.key = smg.key;
    out.descriptor.ways = {smg};
    return out;
  }

  PullRequest Request(const wire::Descriptor& d, Duration timeout = kTestLimit,
                      uint64_t at = 64) const {
    return {.descriptor = &d,
            .length = d.nbytes,
            .into = {landing_.get() + at, d.nbytes},
            .into_owner = landing_,
            .deadline = Now() + timeout};
  }

  static absl::Status Finish(PullOp& op) {
    while (op.Step() != Progress::kDone) {
      std::vector<pollfd> waits;
      Instant wake = kNever;
      op.AddWaits(&waits, &wake);
      (void)PollUntil(&waits, wake, Now());
    }
    return op.TakeResult().status();
  }

  absl::Status Pull(PullEngine& engine, const wire::Descriptor& d, Duration timeout = kTestLimit) {
    return Finish(*engine.Start(Request(d, timeout)));
  }

  // Pulls, and checks every byte and that the gateway has heard of it.
  void ExpectPulled(PullEngine& engine, Gateway& g, const Offered& offered) {
    std::fill_n(landing_.get() + 64, offered.bytes.size(), std::byte{0xcd});
    const absl::Status status = Pull(engine, offered.descriptor);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(std::equal(offered.bytes.begin(), offered.bytes.end(), landing_.get() + 64));
    EXPECT_TRUE(g.leases->WaitUntil([&] {
      const auto keys = g.leases->done_keys();
      return std::find(keys.begin(), keys.end(), offered.descriptor.key) != keys.end();
    })) << "the gateway was not told of key "
        << offered.descriptor.key;
  }

  uint64_t Handshakes(ProcessEnd end, LabelValue result) const {
    return metrics_->ValueOf(Metric::kHandshakes, {end, LabelValue::Transport("nixl"), result});
  }

  std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>();  // of both ends
  std::shared_ptr<const NixlLibrary> library_;
  std::shared_ptr<std::byte> landing_;
  std::unique_ptr<PullEngine> engine_;
};

TEST_F(WithNixlEngine, EverySizeArrivesAndIsReleased) {
  Gateway g = MakeGateway();
  for (const uint64_t nbytes :
       {0UL, 1UL, 2UL, 4096UL, 65536UL, 1UL << 20, (9UL << 20) + 3, (32UL << 20) - 16}) {
    SCOPED_TRACE(nbytes);
    ExpectPulled(*engine_, g, Offer(g, nbytes));
  }
  EXPECT_EQ(g.engine->stats().bad_notifications, 0U);
  EXPECT_EQ(g.engine->stats().handshakes, 1U);
  EXPECT_EQ(Handshakes(ProcessEnd::kGateway, absl::OkStatus()), 1U);
  EXPECT_EQ(Handshakes(ProcessEnd::kWorker, absl::OkStatus()), 1U);
  EXPECT_TRUE(g.leases->WaitUntil(
      [&] { return metrics_->ValueOf(Metric::kNotifications, {NotificationKind::kKnown}) == 8; }));
}

TEST_F(WithNixlEngine, TheAgentMayLiveInTheGatewayItself) {
  NixlExportOptions options = NixlExportOptionsForTest();
  options.in_process = true;
  Gateway g = MakeGateway(options);
  ExpectPulled(*engine_, g, Offer(g, 1 << 20));
  EXPECT_TRUE(AgentPids().empty());
}

TEST_F(WithNixlEngine, NixlsOwnExchangeServesWhereOursCannotReadTheMetadata) {
  NixlPullOptions options;
  options.own_handshake = false;
  const auto engine = MakePuller(options);
  Gateway first = MakeGateway();
  Gateway second = MakeGateway();  // of the same name
  ExpectPulled(*engine, first, Offer(first, 100'000));
  ExpectPulled(*engine, second, Offer(second, 100'000));
}

// Faults 13 and 14: gateways of one name, and one that comes back with another agent.
TEST_F(WithNixlEngine, ManyGatewaysOfOneNameWork) {
  std::vector<Gateway> gateways;
  for (int i = 0; i < 4; ++i) gateways.push_back(MakeGateway());
  for (int round = 0; round < 3; ++round) {
    for (Gateway& g : gateways) ExpectPulled(*engine_, g, Offer(g, 65536));
  }
}

// Fault 45.
TEST_F(WithNixlEngine, PullersHaveNamesOfTheirOwn) {
  Gateway g = MakeGateway();
  const auto second = MakePuller({});
  for (int round = 0; round < 3; ++round) {
    ExpectPulled(*engine_, g, Offer(g, 65536));
    ExpectPulled(*second, g, Offer(g, 65536));
  }
}

TEST_F(WithNixlEngine, AnAgentThatDiesIsReplacedAndReachedInTheSamePull) {
  Gateway g = MakeGateway();
  ExpectPulled(*engine_, g, Offer(g, 65536));
  const Offered waiting = Offer(g, 65536);  // its descriptor is from before
  for (uint64_t epoch = 2; epoch < 5; ++epoch) {
    const std::vector<pid_t> agents = AgentPids();
    ASSERT_EQ(agents.size(), 1U);
    ASSERT_EQ(::kill(agents[0], SIGKILL), 0);
    ASSERT_TRUE(g.leases->WaitUntil([&] { return g.engine->epoch() == epoch; }));
    ExpectPulled(*engine_, g, Offer(g, 65536));
  }
  ExpectPulled(*engine_, g, waiting);
  EXPECT_EQ(metrics_->ValueOf(Metric::kAgentRestarts, {}), 3U);
  EXPECT_GE(metrics_->ValueOf(Metric::kReconnects, {LabelValue::Transport("nixl")}), 3U);
}

TEST_F(WithNixlEngine, ARestartedGatewayIsReachedInTheSamePull) {
  NixlExportOptions options = NixlExportOptionsForTest();
  for (int round = 0; round < 10; ++round) {
    SCOPED_TRACE(round);
    Gateway g = MakeGateway(options);
    options.listen = g.engine->address();  // and the next one on the same port
    ExpectPulled(*engine_, g, Offer(g, 65536));
  }
}

TEST_F(WithNixlEngine, ADeadGatewaysConnectionsAreClosedWithoutAnotherPull) {
  Gateway living = MakeGateway();
  // UCX connects to itself, too, when it first has something to do.
  ExpectPulled(*engine_, living, Offer(living, 65536));
  const size_t before = OpenSockets();
  Gateway g = MakeGateway();
  ExpectPulled(*engine_, g, Offer(g, 65536));
  g.engine.reset();
  EXPECT_GT(OpenSockets(), before) << "there was nothing to close";
  EXPECT_TRUE(Eventually([&] { return OpenSockets() == before; }))
      << OpenSockets() << " sockets instead of " << before;
}

TEST_F(WithNixlEngine, AGatewayMayEndAtOnce) {
  for (int round = 0; round < 8; ++round) {
    Gateway g = MakeGateway();
    if (round % 2 != 0) Offer(g, 100);  // wakes its thread
    g.engine.reset();
  }
}

// Fault 19.
TEST_F(WithNixlEngine, AnUnreachableGatewayDoesNotDelayAHealthyOne) {
  Gateway g = MakeGateway();
  const Offered good = Offer(g, 65536);
  wire::Descriptor nowhere = good.descriptor;
  // Listens, and never answers.
  const auto silent = NixlExportEngine::Create(NixlExportOptionsForTest());
  std::get<wire::SmgDescriptor>(nowhere.ways[0]).port = (*silent)->address().port();
  const auto hanging = engine_->Start(Request(nowhere, kTestLimit, 4 << 20));
  ASSERT_EQ(hanging->Step(), Progress::kIdle);
  ExpectPulled(*engine_, g, good);
  EXPECT_EQ(hanging->Step(), Progress::kIdle) << "the other one was still being tried";
}

TEST_F(WithNixlEngine, AFailedHandshakeIsRememberedForAWhile) {
  NixlPullOptions options;
  options.backoff_min = 10s;
  const auto engine = MakePuller(options);
  Gateway g = MakeGateway();
  Offered offered = Offer(g, 100);
  g.engine.reset();
  EXPECT_EQ(ReasonOf(Pull(*engine, offered.descriptor)), Reason::kUnreachable);
  const auto again = engine->Start(Request(offered.descriptor));
  EXPECT_EQ(again->Step(), Progress::kDone) << "answered at once";
  EXPECT_EQ(ReasonOf(again->TakeResult().status()), Reason::kUnreachable);
  EXPECT_EQ(Handshakes(ProcessEnd::kWorker, Reason::kUnreachable), 1U);
}

TEST_F(WithNixlEngine, WhatCannotBeReadIsRefusedBeforeTheNetwork) {
  Gateway g = MakeGateway();
  const Offered good = Offer(g, 100);
  const auto refused = [&](auto change) {
    wire::Descriptor d = good.descriptor;
    change(std::get<wire::SmgDescriptor>(d.ways[0]));
    return ReasonOf(engine_->CanTry(d));
  };
  EXPECT_EQ(refused([](auto& smg) { smg.host = "::"; }), Reason::kBadAddress);
  EXPECT_EQ(refused([](auto& smg) { smg.host = "gateway.example"; }), Reason::kBadAddress);
  EXPECT_EQ(refused([](auto& smg) { smg.host = "127.0.0.1 "; }), Reason::kBadAddress);
  EXPECT_EQ(refused([](auto& smg) { smg.host = ""; }), Reason::kBadAddress);
  EXPECT_EQ(refused([](auto& smg) { smg.port = 0; }), Reason::kBadAddress);
  EXPECT_EQ(refused([](auto& smg) { smg.gen = 0; }), Reason::kBadGeneration);
  EXPECT_EQ(refused([](auto& smg) { smg.slot_addr = UINT64_MAX - 10; }), Reason::kBadDescriptor);
  EXPECT_EQ(refused([](auto& smg) { smg.host = "192.0.2.1"; }), Reason::kNotAllowed);
  EXPECT_EQ(g.engine->stats().handshakes, 0U);
}

TEST_F(WithNixlEngine, AnAddressOutsideTheArenaIsRefusedAndTheSlotFreed) {
  Gateway g = MakeGateway();
  Offered offered = Offer(g, 100);
  auto& smg = std::get<wire::SmgDescriptor>(offered.descriptor.ways[0]);
  smg.slot_addr += uint64_t{1} << 32;
  EXPECT_EQ(ReasonOf(Pull(*engine_, offered.descriptor)), Reason::kOutOfRange);
  EXPECT_TRUE(g.leases->WaitUntil([&] { return !g.leases->done_keys().empty(); }));
  EXPECT_EQ(g.leases->done_keys().front(), offered.descriptor.key);
}

TEST_F(WithNixlEngine, AMisalignedAddressIsAnotherGeneration) {
  Gateway g = MakeGateway();
  Offered offered = Offer(g, 100);
  std::get<wire::SmgDescriptor>(offered.descriptor.ways[0]).slot_addr += 3;
  EXPECT_EQ(ReasonOf(Pull(*engine_, offered.descriptor)), Reason::kBadGeneration);
}

// Fault 16.
TEST_F(WithNixlEngine, ADeclinedDescriptorFreesItsSlot) {
  Gateway g = MakeGateway();
  const Offered offered = Offer(g, 100);
  engine_->Decline(offered.descriptor);
  EXPECT_TRUE(g.leases->WaitUntil([&] { return !g.leases->done_keys().empty(); }));
  EXPECT_EQ(g.leases->done_keys().front(), offered.descriptor.key);

  // Closing waits for what is still to be told.
  Gateway stranger = MakeGateway();
  NixlPullOptions options;
  options.allow = *AllowList::Parse({"127.0.0.2"});
  const Offered not_allowed = Offer(stranger, 100);
  {
    const auto engine = MakePuller(options);
    engine->Decline(not_allowed.descriptor);
  }
  EXPECT_EQ(stranger.engine->stats().handshakes, 0U);
  EXPECT_TRUE(stranger.leases->done_keys().empty());
}

// Faults 17 and 18: what is no key is counted, and its neighbours are heard.
TEST_F(WithNixlEngine, BadNotificationsCostNoGoodOnes) {
  Gateway g = MakeGateway();
  const Offered offered = Offer(g, 100);
  auto agent = NixlAgent::Create(library_, {.name = "notifier"});
  ASSERT_TRUE(agent.ok()) << agent.status();
  NixlHandshake handshake(g.engine->address(), Now() + kTestLimit);
  while (!handshake.Step(Now())) {
    std::vector<pollfd> waits = {{handshake.fd(), handshake.events(), 0}};
    (void)PollUntil(&waits, handshake.deadline(), Now());
  }
  const auto metadata = handshake.TakeResult();
  ASSERT_TRUE(metadata.ok()) << metadata.status();
  const auto peer = (*agent)->Load(*metadata);
  ASSERT_TRUE(peer.ok()) << peer.status();
  const std::string bad[] = {"\xff\xfe",
                             "",
                             " 7",
                             "7\n",
                             "2:7",
                             "99999999999999999999",
                             std::string(100'000, '1'),
                             std::string("7\0", 2)};
  for (const int64_t key : {1, 2, 3}) {
    ASSERT_TRUE((*agent)->Notify(**peer, std::to_string(key)).ok());
    for (const std::string& text : bad) ASSERT_TRUE((*agent)->Notify(**peer, text).ok());
  }
  EXPECT_TRUE(g.leases->WaitUntil(
      [&] { return g.engine->stats().notifications == 3 * (1 + std::size(bad)); }));
  EXPECT_EQ(g.leases->done_keys(), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(g.engine->stats().bad_notifications, 3 * std::size(bad));
  EXPECT_TRUE(g.leases->WaitUntil([&] {
    return metrics_->ValueOf(Metric::kNotifications, {NotificationKind::kBad}) ==
           3 * std::size(bad);
  }));
}

// Fault 9: a READ that was given up may still write: its memory stays away from others.
TEST_F(WithNixlEngine, AGivenUpReadWritesToItsOwnMemoryOnly) {
  Gateway g = MakeGateway();
  ExpectPulled(*engine_, g, Offer(g, 65536));
  const Offered large = Offer(g, 32 << 20);
  const std::vector<pid_t> agents = AgentPids();
  ASSERT_EQ(agents.size(), 1U);
  ASSERT_EQ(::kill(agents[0], SIGSTOP), 0);
  siginfo_t stopped;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(agents[0]), &stopped, WSTOPPED), 0);
  // What the landing pool would hold for it.
  auto owner = std::make_shared<int>(1);
  const std::weak_ptr<int> held = owner;
  PullRequest request = Request(large.descriptor, 300ms);
  request.into_owner = owner;
  {
    const auto op = engine_->Start(request);
    EXPECT_EQ(ReasonOf(Finish(*op)), Reason::kTimedOut);
  }
  request.into_owner.reset();
  owner.reset();
  EXPECT_FALSE(held.expired()) << "the READ is not over";
  EXPECT_EQ(SampleOf(*metrics_, Metric::kQuarantinedReads), 1);
  EXPECT_EQ(SampleOf(*metrics_, Metric::kQuarantinedBytes), (32 << 20) + 16);
  ASSERT_EQ(::kill(agents[0], SIGCONT), 0);
  EXPECT_TRUE(g.leases->WaitUntil([&] { return held.expired(); }));
  EXPECT_EQ(SampleOf(*metrics_, Metric::kQuarantinedReads), 0);
  EXPECT_EQ(SampleOf(*metrics_, Metric::kQuarantinedBytes), 0);
  // And its lease is freed once nothing reads it any more.
  EXPECT_TRUE(g.leases->WaitUntil([&] {
    const auto keys = g.leases->done_keys();
    return std::find(keys.begin(), keys.end(), large.descriptor.key) != keys.end();
  }));
  // Nothing lands later: by now other bytes may be there.
  std::fill_n(landing_.get(), kLanding, std::byte{0x5a});
  ExpectPulled(*engine_, g, Offer(g, 4096));
  EXPECT_TRUE(std::all_of(landing_.get() + (1 << 20), landing_.get() + kLanding,
                          [](std::byte b) { return b == std::byte{0x5a}; }));
}

// Faults 2 and 3: memory that is leased anew under a READ, with a shorter payload, so that the old trailer stays.
TEST_F(WithNixlEngine, TenThousandForcedOverlapsDeliverNoWrongByte) {
  Gateway g = MakeGateway();
  constexpr uint64_t kBytes = 8192;
  Offered offered = Offer(g, kBytes);
  ExpectPulled(*engine_, g, offered);
  std::byte* const payload = g.leases->arena().data + offered.lease.payload_offset;
  auto& smg = std::get<wire::SmgDescriptor>(offered.descriptor.ways[0]);
  uint64_t generation = smg.gen;
  int delivered = 0;
  int refused = 0;
  std::atomic<int> turn = 0;
  std::atomic<bool> stop = false;
  // The gateway: leases the memory to somebody else, in the order that Stage and Publish have.
  std::thread gateway([&] {
    while (!stop) {
      if (turn.load() != 1) continue;
      const uint64_t other = smg.gen + 1;
      const uint64_t nbytes = kBytes / 2;
      wire::WriteFrameHeader(payload - 8, 0);
      wire::WriteFrameTrailer(payload - 8, nbytes, 0);
      std::fill_n(payload, nbytes, std::byte{0xee});
      wire::WriteFrameHeader(payload - 8, other);
      wire::WriteFrameTrailer(payload - 8, nbytes, other);
      turn = 2;
    }
  });
  for (int i = 0; i < 10'000; ++i) {
    const auto fill = static_cast<std::byte>(1 + i % 200);
    generation += 2;
    smg.gen = generation;
    std::fill_n(payload, kBytes, fill);
    wire::WriteFrameHeader(payload - 8, generation);
    wire::WriteFrameTrailer(payload - 8, kBytes, generation);
    const auto op = engine_->Start(Request(offered.descriptor));
    // Until the first READ is posted, or for some rounds until it has come: then the memory goes to another lease.
    for (int steps = i % 4; steps >= 0 && op->Step() != Progress::kDone; --steps) {
    }
    turn = 1;
    const absl::Status status = Finish(*op);
    while (turn.load() != 2) {
    }
    turn = 0;
    if (status.ok()) {
      ++delivered;
      const std::byte* got = landing_.get() + 64;
      ASSERT_TRUE(std::all_of(got, got + kBytes, [&](std::byte b) { return b == fill; })) << i;
    } else {
      ++refused;
      ASSERT_EQ(ReasonOf(status), Reason::kBadGeneration) << status;
    }
  }
  stop = true;
  gateway.join();
  RecordProperty("delivered", delivered);
  RecordProperty("refused", refused);
  EXPECT_GT(refused, 100) << "the overlaps did not overlap";
}

// Fault 8: from the end of the puller's READ until the gateway knows of it.
TEST_F(WithNixlEngine, AReleaseIsHeardWithinFiveMilliseconds) {
  constexpr int kRuns = 3;
  constexpr size_t kPulls = 300;
  constexpr Duration kLimit = 5ms;
  Duration best = Duration::max();
  for (int run = 0; run < kRuns && best >= kLimit;
       ++run) {  // what else the machine does is not measured
    Gateway g = MakeGateway();
    std::vector<Duration> took;
    for (size_t i = 0; i < kPulls; ++i) {
      const Offered offered = Offer(g, 65536);
      const absl::Status status = Pull(*engine_, offered.descriptor);
      const Instant ended = Now();
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_TRUE(g.leases->WaitUntil([&] { return g.leases->done_keys().size() > i; }));
      took.push_back(Now() - ended);
    }
    std::sort(took.begin(), took.end());
    const auto ms = [](Duration d) { return std::chrono::duration<double, std::milli>(d).count(); };
    const Duration p99 = took[kPulls * 99 / 100];
    std::printf("release heard after %.3f ms (p50), %.3f ms (p99)\n", ms(took[kPulls / 2]),
                ms(p99));
    best = std::min(best, p99);
  }
  EXPECT_LT(best, kLimit);
}

TEST_F(WithNixlEngine, AForkedChildIsRefusedAndHarmsNothing) {
  Gateway g = MakeGateway();
  const Offered offered = Offer(g, 4096);
  ExpectPulled(*engine_, g, offered);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto op = engine_->Start(Request(offered.descriptor));
    const bool refused =
        op->Step() == Progress::kDone && ReasonOf(op->TakeResult().status()) == Reason::kLaneOff;
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ExpectPulled(*engine_, g, Offer(g, 4096));
}

TEST_F(WithNixlEngine, AnAgentThatCannotStartIsAReason) {
  FakeLeaseSource leases;
  NixlExportOptions options = NixlExportOptionsForTest();
  options.agent_program = "/nowhere/tensorferry-nixl-agent";
  auto engine = NixlExportEngine::Create(options);
  absl::Status status = (*engine)->Start(leases.arena(), &leases);
  EXPECT_EQ(ReasonOf(status), Reason::kLaneOff);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere/tensorferry-nixl-agent"));

  options = NixlExportOptionsForTest();
  options.library.dir = "/nowhere";
  engine = NixlExportEngine::Create(options);
  status = (*engine)->Start(leases.arena(), &leases);
  EXPECT_EQ(ReasonOf(status), Reason::kLaneOff);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere holds no libnixl_capi.so"));

  options = NixlExportOptionsForTest();
  options.agent_program = "/bin/false";
  engine = NixlExportEngine::Create(options);
  status = (*engine)->Start(leases.arena(), &leases);
  EXPECT_EQ(ReasonOf(status), Reason::kLaneOff);
}

TEST_F(WithNixlEngine, ATakenPortAndAWildcardAreErrors) {
  Gateway g = MakeGateway();
  NixlExportOptions options = NixlExportOptionsForTest();
  options.listen = g.engine->address();
  EXPECT_EQ(ReasonOf(NixlExportEngine::Create(options).status()), Reason::kAddressInUse);
  options.listen = *SocketAddress::Parse("0.0.0.0:0");
  EXPECT_EQ(ReasonOf(NixlExportEngine::Create(options).status()), Reason::kBadAddress);
}

}  // namespace
}  // namespace tensorferry::engine
