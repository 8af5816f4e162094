#include "tensorferry/exporter/exporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/exporter/exporter_testing.h"
#include "tensorferry/wire/bytes.h"
#include "tensorferry/wire/smg_descriptor.h"

namespace tensorferry {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

wire::Descriptor Decode(const Lease& lease, Lease::Ways ways = {}) {
  const absl::StatusOr<std::string> bytes = lease.Descriptor(ways);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return *wire::DecodeDescriptor(std::as_bytes(std::span(*bytes)));
}

// Collects events; waiting for one is waiting for the call.
class Events {
 public:
  std::function<void(const LeaseEvent&)> Sink() {
    return [this](const LeaseEvent& e) {
      const std::lock_guard<std::mutex> lock(mu_);
      events_.push_back(e);
      changed_.notify_all();
    };
  }
  LeaseEvent Next() {
    std::unique_lock<std::mutex> lock(mu_);
    changed_.wait(lock, [&] { return taken_ < events_.size(); });
    return events_[taken_++];
  }
  size_t count() {
    const std::lock_guard<std::mutex> lock(mu_);
    return events_.size();
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  std::vector<LeaseEvent> events_;
  size_t taken_ = 0;
};

constexpr seconds kTestLimit{60};

// What an exporter logs.
class Lines {
 public:
  LogSink Sink() {
    return [this](LogLevel, std::string_view line) {
      const std::lock_guard<std::mutex> lock(mu_);
      lines_.emplace_back(line);
      changed_.notify_all();
    };
  }
  void WaitFor(std::string_view text) {
    std::unique_lock<std::mutex> lock(mu_);
    EXPECT_TRUE(changed_.wait_for(lock, kTestLimit, [&] {
      return std::any_of(lines_.begin(), lines_.end(), [&](const std::string& line) {
        return line.find(text) != std::string::npos;
      });
    })) << text;
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
};

TEST(ExporterTest, StagedBytesAreAlignedAndBecomeTheLease) {
  ExporterForTest gateway;
  Staged staged = gateway->Stage(1000);
  ASSERT_TRUE(staged.in_arena());
  ASSERT_EQ(staged.bytes().size(), 1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(staged.bytes().data()) % 64, 0);
  const auto pattern = Pattern(1000, 1);
  std::memcpy(staged.bytes().data(), pattern.data(), 1000);
  const Lease lease = std::move(staged).Publish({.key = 42});
  EXPECT_TRUE(lease.exported().ok());
  EXPECT_EQ(lease.key(), 42);
  EXPECT_TRUE(std::ranges::equal(lease.bytes(), pattern));
  const wire::Descriptor d = Decode(lease);
  EXPECT_EQ(d.instance, gateway->instance());
  EXPECT_EQ(d.key, 42);
  EXPECT_EQ(d.nbytes, 1000);
  EXPECT_FALSE(d.wants_done);
  EXPECT_EQ(d.ways.size(), 2);
}

TEST(ExporterTest, DescriptorOffersOnlyTheWaysAskedFor) {
  ExporterForTest gateway;
  const Lease lease = gateway->Export(Pattern(64, 1), {});
  const wire::Descriptor shm = Decode(lease, {.shm = true, .remote = false});
  ASSERT_EQ(shm.ways.size(), 1);
  EXPECT_TRUE(std::holds_alternative<wire::LocalWay>(shm.ways[0]));
  const wire::Descriptor remote = Decode(lease, {.shm = false, .remote = true});
  ASSERT_EQ(remote.ways.size(), 1);
  EXPECT_EQ(std::get<wire::NetWay>(remote.ways[0]).addresses.front().ToString(),
            gateway->listen_address());
  EXPECT_EQ(ReasonOf(lease.Descriptor({.shm = false, .remote = false}).status()), Reason::kLaneOff);
}

wire::SmgDescriptor DecodeSmg(const Lease& lease) {
  const auto bytes = lease.SmgDescriptor();
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return *wire::ParseSmgDescriptor(wire::AsBytes(*bytes), std::nullopt);
}

TEST(ExporterTest, ALeaseForSmgsWorkersIsAFrameInTheArena) {
  OneSidedEngine* engine = nullptr;
  ExporterForTest gateway(OneSidedEngine::Into(&engine));
  const auto pattern = Pattern(1000, 1);
  const Lease lease = gateway->Export(pattern, {.key = 42, .readers = 1});
  EXPECT_THAT(engine->published, IsEmpty()) << "nobody was told of it yet";
  const wire::SmgDescriptor smg = DecodeSmg(lease);
  EXPECT_EQ(smg.key, 42);
  EXPECT_EQ(smg.port, 7);
  EXPECT_EQ(smg.host, "127.0.0.1");
  EXPECT_EQ((smg.slot_addr + 8) % 64, 0U);
  EXPECT_EQ(engine->StampAt(smg.slot_addr), smg.gen);
  EXPECT_EQ(engine->StampAt(smg.slot_addr + 8 + 1000), smg.gen);
  EXPECT_EQ(std::memcmp(reinterpret_cast<const void*>(smg.slot_addr + 8), pattern.data(), 1000), 0);
  ASSERT_EQ(engine->published.size(), 1U);
  EXPECT_EQ(engine->published[0].generation, smg.gen);
  EXPECT_EQ(Decode(lease).ways.size(), 2U) << "our own descriptors do not name it";
}

// Faults 1, 2 and 16.
TEST(ExporterTest, ANotificationEndsItsLeaseOnceAndNoNewerOne) {
  OneSidedEngine* engine = nullptr;
  ExporterForTest gateway(OneSidedEngine::Into(&engine));
  Lease read = gateway->Export(Pattern(1000, 1), {.key = 1, .readers = 1});
  const wire::SmgDescriptor smg = DecodeSmg(read);
  EXPECT_EQ(ReasonOf(gateway->Export(Pattern(10, 1), {.key = 1}).exported()),
            Reason::kDuplicateKey);
  EXPECT_TRUE(engine->leases->DoneByKey(1));
  EXPECT_THAT(engine->retired, testing::Contains(smg.gen));
  EXPECT_EQ(ReasonOf(read.SmgDescriptor().status()), Reason::kLeaseEnded);
  read = Lease();
  EXPECT_EQ(gateway->stats().resting_bytes, 0U) << "its reader was heard";

  Lease unread = gateway->Export(Pattern(1000, 2), {.key = 1, .readers = 1});
  const wire::SmgDescriptor old = DecodeSmg(unread);
  unread = Lease();  // its RPC broke: somebody may be reading
  EXPECT_GT(gateway->stats().resting_bytes, 0U);
  EXPECT_EQ(engine->StampAt(old.slot_addr), 0U);
  EXPECT_EQ(engine->StampAt(old.slot_addr + 8 + 1000), 0U);
  const Lease newer = gateway->Export(Pattern(1000, 3), {.key = 1, .readers = 1});
  EXPECT_NE(DecodeSmg(newer).slot_addr, old.slot_addr);
  EXPECT_FALSE(engine->leases->DoneByKey(1)) << "the late one is for the lease before";
  EXPECT_TRUE(newer.SmgDescriptor().ok());
  EXPECT_TRUE(engine->leases->DoneByKey(1));
  EXPECT_FALSE(engine->leases->DoneByKey(1));
}

// Fault 3: a frame that was whole is not, as soon as its memory is somebody's again.
TEST(ExporterTest, StagedMemoryShowsNoWholeFrame) {
  OneSidedEngine* engine = nullptr;
  ExporterForTest gateway(OneSidedEngine::Into(&engine));
  wire::SmgDescriptor smg;
  {
    const Lease lease = gateway->Export(Pattern(5000, 1), {.key = 1, .readers = 1});
    smg = DecodeSmg(lease);
    EXPECT_TRUE(engine->leases->DoneByKey(1));
  }
  Staged staged = gateway->Stage(100);
  ASSERT_EQ(reinterpret_cast<uintptr_t>(staged.bytes().data()), smg.slot_addr + 8);
  EXPECT_EQ(engine->StampAt(smg.slot_addr), 0U);
  const Lease lease = std::move(staged).Publish({.key = 2});
  EXPECT_NE(engine->StampAt(smg.slot_addr), smg.gen);
}

// What ucx does for a reader that fetches by itself.
TEST(ExporterTest, MemoryThatAReaderWasToldOfShowsWhenItIsAnothers) {
  OneSidedEngine* engine = nullptr;
  ExporterForTest gateway(OneSidedEngine::Into(&engine));
  const auto pattern = Pattern(5000, 1);
  Lease lease = gateway->Export(pattern, {.readers = 1});
  const wire::LeaseRef ref = Decode(lease).lease;
  const auto located = engine->leases->Locate(ref, 7, 100);
  ASSERT_TRUE(located.ok()) << located.status();
  EXPECT_TRUE(std::ranges::equal(*located, pattern)) << "the whole payload";
  const auto header = reinterpret_cast<uintptr_t>(located->data()) - 8;
  const uintptr_t trailer = header + 8 + 5000;
  EXPECT_EQ(engine->StampAt(header), ref.generation);
  EXPECT_EQ(engine->StampAt(trailer), ref.generation);
  EXPECT_EQ(ReasonOf(engine->leases->Locate(ref, 1, 5000).status()), Reason::kOutOfRange);

  engine->leases->Done(ref);
  EXPECT_EQ(ReasonOf(engine->leases->Locate(ref, 0, 1).status()), Reason::kLeaseEnded);
  lease = Lease();
  EXPECT_EQ(gateway->stats().resting_bytes, 0U) << "its reader was heard";
  EXPECT_EQ(engine->StampAt(header), 0U);
  EXPECT_EQ(engine->StampAt(trailer), 0U) << "the next lease's stamps may lie elsewhere";

  lease = gateway->Export(pattern, {.readers = 1});
  ASSERT_TRUE(engine->leases->Locate(Decode(lease).lease, 0, 5000).ok());
  lease = Lease();  // its RPC broke: somebody may be reading
  EXPECT_GT(gateway->stats().resting_bytes, 0U);
}

// Like ucx with get: one-sided, and none of SMG's.
class GetEngine final : public engine::ExportEngine {
 public:
  std::string_view transport() const override { return "ucx"; }
  absl::Status Start(const engine::ArenaView&, engine::LeaseSource*) override {
    return absl::OkStatus();
  }
  wire::Way way() const override {
    return wire::NetWay{wire::NetWay::Kind::kUcx, {*SocketAddress::Parse("127.0.0.1:1")}, true};
  }
  void Publish(const engine::PublishedLease& lease) override { published.push_back(lease); }
  bool Retire(const wire::LeaseRef&) override { return true; }
  bool one_sided() const override { return true; }
  std::vector<engine::PublishedLease> published;
};

TEST(ExporterTest, AOneSidedEngineThatIsNotForSmgIsNamedInOurDescriptors) {
  auto made = std::make_unique<GetEngine>();
  GetEngine* const engine = made.get();
  ExporterOptions options{.arena_bytes = 1 << 20};
  options.engines.push_back(std::move(made));
  const auto exporter = Exporter::Create(std::move(options));
  ASSERT_TRUE(exporter.ok()) << exporter.status();
  const auto pattern = Pattern(100, 1);
  const Lease lease = (*exporter)->Export(pattern, {});
  const wire::Descriptor descriptor = Decode(lease);
  ASSERT_EQ(descriptor.ways.size(), 1U);
  EXPECT_TRUE(std::get<wire::NetWay>(descriptor.ways[0]).one_sided);
  EXPECT_EQ(engine->published.size(), 1U);
  EXPECT_THAT(lease.transports(), ElementsAre("ucx"));
  EXPECT_EQ(ReasonOf(lease.SmgDescriptor().status()), Reason::kLaneOff);
  EXPECT_EQ((*exporter)->smg_epoch(), 0U);
}

TEST(ExporterTest, WithoutSuchAnEngineThereIsNoSmgDescriptor) {
  ExporterForTest gateway;
  const Lease lease = gateway->Export(Pattern(10, 1), {});
  EXPECT_EQ(ReasonOf(lease.SmgDescriptor().status()), Reason::kLaneOff);
}

TEST(ExporterTest, AFullArenaFallsBackToTheHeap) {
  ExporterForTest gateway([](ExporterOptions* o) { o->arena_bytes = 1 << 20; });
  const Lease first = gateway->Export(Pattern(900'000, 1), {});
  ASSERT_TRUE(first.exported().ok());
  const auto pattern = Pattern(900'000, 2);
  Lease second = gateway->Export(pattern, {.key = 5});
  EXPECT_EQ(ReasonOf(second.exported()), Reason::kArenaFull);
  EXPECT_THAT(second.exported().message(), HasSubstr("arena_bytes"));
  EXPECT_EQ(ReasonOf(second.Descriptor().status()), Reason::kArenaFull);
  EXPECT_TRUE(std::ranges::equal(second.bytes(), pattern));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(second.bytes().data()) % 64, 0);
  EXPECT_EQ(gateway->stats().heap_fallbacks, 1);
}

TEST(ExporterTest, AnAbsurdSizeIsAnErrorOfTheLeaseNotACrash) {
  ExporterForTest gateway;
  for (const uint64_t nbytes : {UINT64_MAX, UINT64_MAX - 63, uint64_t{1} << 62}) {
    Staged staged = gateway->Stage(nbytes);
    EXPECT_FALSE(staged.in_arena());
    EXPECT_THAT(staged.bytes(), IsEmpty());
    EXPECT_EQ(ReasonOf(std::move(staged).Publish({}).exported()), Reason::kNoMemory);
  }
}

TEST(ExporterTest, ADuplicateKeyKeepsItsBytesAndTheFirstLease) {
  ExporterForTest gateway;
  const Lease first = gateway->Export(Pattern(100, 1), {.key = 7});
  const auto pattern = Pattern(100, 2);
  {
    const Lease second = gateway->Export(pattern, {.key = 7});
    EXPECT_EQ(ReasonOf(second.exported()), Reason::kDuplicateKey);
    EXPECT_TRUE(std::ranges::equal(second.bytes(), pattern));
  }
  EXPECT_TRUE(first.Descriptor().ok());
  EXPECT_EQ(gateway->stats().published, 1);
}

TEST(ExporterTest, KeysAreReusableOnceTheLeaseHasEnded) {
  ExporterForTest gateway;
  uint64_t generation = 0;
  for (int i = 0; i < 100; ++i) {
    const Lease lease = gateway->Export(Pattern(100, 1), {.key = 7});
    ASSERT_TRUE(lease.exported().ok());
    const uint64_t next = Decode(lease).lease.generation;
    EXPECT_NE(next, generation);
    generation = next;
  }
}

TEST(ExporterTest, DroppingGivesTheMemoryBack) {
  ExporterForTest gateway;
  const uint64_t free_bytes = gateway->stats().free_bytes;
  { const Staged never_published = gateway->Stage(1 << 20); }
  { const Lease lease = gateway->Export(Pattern(1 << 20, 1), {}); }
  Staged staged = gateway->Stage(1 << 20);
  staged = gateway->Stage(1 << 10);
  staged = Staged();
  Lease lease = gateway->Export(Pattern(1 << 20, 1), {});
  lease = gateway->Export(Pattern(1 << 10, 1), {});
  lease = Lease();
  EXPECT_EQ(gateway->stats().free_bytes, free_bytes);
}

TEST(ExporterTest, CancelEndsADetachedLeaseOnce) {
  Events events;
  ExporterForTest gateway([&](ExporterOptions* o) { o->on_event = events.Sink(); });
  const uint64_t free_bytes = gateway->stats().free_bytes;
  gateway->Export(Pattern(100, 1), {.key = -3, .readers = 2}).Detach();
  EXPECT_EQ(gateway->stats().published, 1);
  EXPECT_TRUE(gateway->Cancel(-3).ok());
  const LeaseEvent event = events.Next();
  EXPECT_EQ(event.kind, LeaseEvent::Kind::kCancelled);
  EXPECT_EQ(event.key, -3);
  EXPECT_EQ(event.nbytes, 100);
  EXPECT_EQ(ReasonOf(gateway->Cancel(-3)), Reason::kLeaseEnded);
  EXPECT_EQ(gateway->stats().free_bytes, free_bytes);
}

TEST(ExporterTest, ALeaseExpiresAtItsTimeAndItsBytesStayWithItsOwner) {
  Events events;
  ExporterForTest gateway([&](ExporterOptions* o) { o->on_event = events.Sink(); });
  const auto pattern = Pattern(100, 1);
  const Lease lease = gateway->Export(pattern, {.key = 1, .ttl = milliseconds(1)});
  EXPECT_EQ(events.Next().kind, LeaseEvent::Kind::kExpired);
  EXPECT_TRUE(std::ranges::equal(lease.bytes(), pattern));
  EXPECT_EQ(gateway->stats().published, 0);
  EXPECT_EQ(gateway->stats().ended, 1);
}

TEST(ExporterTest, AShorterTtlWakesTheReaperThatSleepsForALongerOne) {
  Events events;
  ExporterForTest gateway([&](ExporterOptions* o) { o->on_event = events.Sink(); });
  const Lease slow = gateway->Export(Pattern(100, 1), {.key = 1, .ttl = seconds(3600)});
  const Lease fast = gateway->Export(Pattern(100, 1), {.key = 2, .ttl = milliseconds(1)});
  EXPECT_EQ(events.Next().key, 2);
}

TEST(ExporterTest, TimeIsTheInjectedClocks) {
  ManualClock clock;
  Events events;
  ExporterForTest gateway([&](ExporterOptions* o) {
    o->clock = &clock;
    o->on_event = events.Sink();
  });
  const Lease lease = gateway->Export(Pattern(100, 1), {.key = 1, .ttl = seconds(10)});
  clock.Advance(seconds(9));
  const Staged before = gateway->Stage(1);
  EXPECT_EQ(events.count(), 0);
  clock.Advance(seconds(1));
  const Staged after = gateway->Stage(1);
  EXPECT_EQ(events.Next().kind, LeaseEvent::Kind::kExpired);
}

TEST(ExporterTest, AnInfiniteTtlDoesNotOverflow) {
  ExporterForTest gateway;
  const Lease lease = gateway->Export(Pattern(100, 1), {.ttl = Duration::max()});
  EXPECT_TRUE(lease.exported().ok());
  EXPECT_EQ(gateway->stats().published, 1);
}

TEST(ExporterTest, DrainWaitsForReadableLeasesAndRefusesNewOnes) {
  ExporterForTest gateway;
  EXPECT_TRUE(gateway->Drain(Duration::zero()).ok());
  const Lease refused = gateway->Export(Pattern(100, 1), {});
  EXPECT_EQ(ReasonOf(refused.exported()), Reason::kShutDown);
  EXPECT_EQ(refused.bytes().size(), 100);
}

TEST(ExporterTest, DrainSaysHowManyLeasesRemain) {
  ExporterForTest gateway;
  Lease a = gateway->Export(Pattern(100, 1), {});
  Lease b = gateway->Export(Pattern(100, 1), {});
  const absl::Status status = gateway->Drain(milliseconds(1));
  EXPECT_EQ(ReasonOf(status), Reason::kTimedOut);
  EXPECT_THAT(status.message(), HasSubstr("2 leases"));
  std::thread dropper([&] {
    a = Lease();
    b = Lease();
  });
  EXPECT_TRUE(gateway->Drain(seconds(60)).ok());
  dropper.join();
}

TEST(ExporterTest, HandlesOutliveTheExporter) {
  auto gateway = std::make_unique<ExporterForTest>();
  const auto pattern = Pattern(1000, 1);
  Staged staged = (*gateway)->Stage(1000);
  const Lease lease = (*gateway)->Export(pattern, {});
  gateway.reset();
  std::memset(staged.bytes().data(), 1, staged.bytes().size());
  EXPECT_TRUE(std::ranges::equal(lease.bytes(), pattern));
  EXPECT_EQ(ReasonOf(std::move(staged).Publish({}).exported()), Reason::kShutDown);
}

TEST(ExporterTest, BadOptionsAreNamed) {
  const TempDir dir;
  const auto error = [](ExporterOptions options) {
    const auto created = Exporter::Create(std::move(options));
    EXPECT_FALSE(created.ok());
    return created.status();
  };
  EXPECT_THAT(error({.arena_bytes = 0}).message(), HasSubstr("arena_bytes"));
  EXPECT_THAT(error({.arena_bytes = 4096, .max_claim_percent = 101}).message(), HasSubstr("101"));
  EXPECT_THAT(error({.arena_bytes = 4096, .lease_ttl = Duration::zero()}).message(),
              HasSubstr("lease_ttl"));
  EXPECT_EQ(ReasonOf(error({.arena_bytes = 4096, .listen = "0.0.0.0:0"})), Reason::kBadAddress);
  EXPECT_EQ(ReasonOf(error({.arena_bytes = 4096, .listen = "gateway:1"})), Reason::kBadAddress);
  // Not an address of this machine (RFC 5737).
  EXPECT_FALSE(error({.arena_bytes = 4096, .listen = "192.0.2.1:0"}).ok());
}

TEST(ExporterTest, ATakenPortIsNamed) {
  ExporterForTest first;
  const auto second = Exporter::Create({.arena_bytes = 4096, .listen = first->listen_address()});
  EXPECT_EQ(ReasonOf(second.status()), Reason::kAddressInUse);
  EXPECT_THAT(second.status().message(), HasSubstr(first->listen_address()));
}

TEST(ExporterTest, ATakenPortDelaysItsLaneAndNothingElse) {
  TempDir dir;
  auto first = Exporter::Create({.arena_bytes = 4096, .listen = "127.0.0.1:0"});
  const std::string taken = (*first)->listen_address();
  Lines log;
  const auto second = Exporter::Create({.arena_bytes = 1 << 20,
                                        .listen = taken,
                                        .local_socket = dir / "gateway.sock",
                                        .log = log.Sink(),
                                        .background = true});
  ASSERT_TRUE(second.ok()) << second.status();
  log.WaitFor("engine/tcp does not run yet");
  log.WaitFor(taken);
  log.WaitFor("engine/local runs");
  EXPECT_THAT((*second)->transports(), ElementsAre("local"));
  EXPECT_THAT((*second)->starting(), ElementsAre("tcp"));
  ASSERT_EQ((*second)->engines().size(), 2U);
  EXPECT_EQ(ReasonOf((*second)->engines()[1].status), Reason::kAddressInUse);
  const absl::Status waited = (*second)->WaitStarted(milliseconds(1));
  EXPECT_EQ(ReasonOf(waited), Reason::kTimedOut);
  EXPECT_THAT(waited.message(), HasSubstr("engine/tcp"));
  EXPECT_THAT(waited.message(), HasSubstr(taken));
  const Lease before = (*second)->Export(Pattern(100, 1), {});
  EXPECT_THAT(before.transports(), ElementsAre("local"));
  EXPECT_EQ(Decode(before).ways.size(), 1U);

  first->reset();
  ASSERT_TRUE((*second)->WaitStarted(kTestLimit).ok());
  EXPECT_EQ((*second)->listen_address(), taken);
  EXPECT_THAT((*second)->transports(), ElementsAre("local", "tcp"));
  EXPECT_THAT((*second)->starting(), IsEmpty());
  const Lease after = (*second)->Export(Pattern(100, 1), {});
  EXPECT_THAT(after.transports(), ElementsAre("local", "tcp"));
  EXPECT_EQ(Decode(after).ways.size(), 2U);
  EXPECT_EQ(Decode(before).ways.size(), 1U) << "an engine serves what it was told of";
}

TEST(ExporterTest, AnEngineThatCannotBeMadeYetIsMadeAgain) {
  std::atomic<int> tries = 0;
  const auto exporter = Exporter::Create(
      {.arena_bytes = 1 << 20,
       .make_engines = {{.transport = "nixl",
                         .one_sided = true,
                         .make = [&]() -> absl::StatusOr<std::unique_ptr<engine::ExportEngine>> {
                           if (++tries < 3) return MakeError(Reason::kUnreachable, "not yet");
                           return std::make_unique<OneSidedEngine>();
                         }}},
       .background = true});
  ASSERT_TRUE(exporter.ok()) << exporter.status();
  const Lease before = (*exporter)->Export(Pattern(100, 1), {});
  ASSERT_TRUE((*exporter)->WaitStarted(kTestLimit).ok());
  EXPECT_EQ(tries, 3);
  EXPECT_TRUE(before.SmgDescriptor().ok()) << "its frame was written before there was an engine";
}

// Like ucx with an RDMA device.
class PreferredEngine final : public engine::ExportEngine {
 public:
  std::string_view transport() const override { return "ucx"; }
  absl::Status Start(const engine::ArenaView&, engine::LeaseSource*) override {
    return absl::OkStatus();
  }
  wire::Way way() const override {
    return wire::NetWay{wire::NetWay::Kind::kUcx, {*SocketAddress::Parse("127.0.0.1:1")}};
  }
  void Publish(const engine::PublishedLease&) override {}
  bool Retire(const wire::LeaseRef&) override { return true; }
  bool preferred() const override { return true; }
};

TEST(ExporterTest, WhatBeatsSocketsIsNamedBeforeThem) {
  for (const bool made_later : {false, true}) {
    ExporterOptions options{.arena_bytes = 1 << 20, .listen = "127.0.0.1:0"};
    if (made_later) {
      options.make_engines.push_back({.transport = "ucx", .preferred = true, .make = [] {
                                        return std::make_unique<PreferredEngine>();
                                      }});
    } else {
      options.engines.push_back(std::make_unique<PreferredEngine>());
    }
    const auto exporter = Exporter::Create(std::move(options));
    ASSERT_TRUE(exporter.ok()) << exporter.status();
    EXPECT_THAT((*exporter)->transports(), ElementsAre("ucx", "tcp"));
    const Lease lease = (*exporter)->Export(Pattern(100, 1), {});
    const wire::Descriptor descriptor = Decode(lease);
    ASSERT_EQ(descriptor.ways.size(), 2U);
    EXPECT_EQ(wire::TransportOf(descriptor.ways[0]), "ucx");
  }
}

// Like nixl without its library, which shows when it starts.
class BrokenEngine final : public engine::ExportEngine {
 public:
  std::string_view transport() const override { return "nixl"; }
  absl::Status Start(const engine::ArenaView&, engine::LeaseSource*) override {
    return MakeError(Reason::kLaneOff, "no library");
  }
  wire::Way way() const override { return wire::LocalWay{}; }
  void Publish(const engine::PublishedLease&) override {}
  bool Retire(const wire::LeaseRef&) override { return true; }
};

TEST(ExporterTest, AnEngineThatDoesNotStartIsLeftOutWhereThatIsAsked) {
  const auto create = [](std::string listen, bool asked, std::vector<std::string>* left_out) {
    ExporterOptions options{.arena_bytes = 1 << 20, .listen = std::move(listen)};
    options.engines.push_back(std::make_unique<PreferredEngine>());
    options.engines.push_back(std::make_unique<BrokenEngine>());
    if (asked) {
      options.on_left_out = [=](std::string_view transport, const absl::Status& why) {
        left_out->push_back(StrCat(transport, ": ", why.message()));
      };
    }
    return Exporter::Create(std::move(options));
  };
  std::vector<std::string> left_out;
  EXPECT_EQ(ReasonOf(create("127.0.0.1:0", false, &left_out).status()), Reason::kLaneOff);
  const auto exporter = create("127.0.0.1:0", true, &left_out);
  ASSERT_TRUE(exporter.ok()) << exporter.status();
  EXPECT_THAT(left_out, ElementsAre("nixl: no library"));
  EXPECT_THAT((*exporter)->transports(), ElementsAre("ucx", "tcp"));
  EXPECT_THAT((*exporter)->starting(), IsEmpty()) << "nobody waits for it";
  EXPECT_THAT((*exporter)->Export(Pattern(100, 1), {}).transports(), ElementsAre("ucx", "tcp"));
  // A port that is taken is another matter.
  EXPECT_EQ(ReasonOf(create((*exporter)->listen_address(), true, &left_out).status()),
            Reason::kAddressInUse);
}

TEST(ExporterTest, AnEngineThatSaysNotThatItIsOneSidedIsRefused) {
  const auto exporter = Exporter::Create(
      {.arena_bytes = 1 << 20, .make_engines = {{.transport = "nixl", .make = [] {
                                                   return std::make_unique<OneSidedEngine>();
                                                 }}}});
  EXPECT_EQ(exporter.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(exporter.status().message(), HasSubstr("EngineMaker"));
}

TEST(ExporterTest, InTheBackgroundWhatNoTimeMendsIsRefusedAtOnce) {
  EXPECT_EQ(
      ReasonOf(Exporter::Create({.arena_bytes = 4096, .listen = "0.0.0.0:0", .background = true})
                   .status()),
      Reason::kBadAddress);
  EXPECT_EQ(
      ReasonOf(Exporter::Create({.arena_bytes = 4096, .listen = "nonsense", .background = true})
                   .status()),
      Reason::kBadAddress);
}

TEST(ExporterTest, ItClosesWhileAnEngineIsStillTried) {
  auto first = Exporter::Create({.arena_bytes = 4096, .listen = "127.0.0.1:0"});
  Lines log;
  auto second = Exporter::Create({.arena_bytes = 4096,
                                  .listen = (*first)->listen_address(),
                                  .log = log.Sink(),
                                  .background = true});
  log.WaitFor("does not run yet");
  const Lease lease = (*second)->Export(Pattern(100, 1), {});
  (*second)->Close();
  EXPECT_EQ(ReasonOf(lease.Descriptor().status()), Reason::kShutDown);
}

TEST(ExporterTest, WithoutEnginesEverythingCanStillGoInline) {
  const auto exporter = Exporter::Create({.arena_bytes = 1 << 20});
  ASSERT_TRUE(exporter.ok());
  EXPECT_THAT((*exporter)->transports(), IsEmpty());
  const Lease lease = (*exporter)->Export(Pattern(100, 1), {});
  EXPECT_TRUE(lease.exported().ok());
  EXPECT_EQ(ReasonOf(lease.Descriptor().status()), Reason::kLaneOff);
}

TEST(ExporterTest, TransportsAreInOrderOfPreference) {
  ExporterForTest gateway;
  EXPECT_THAT(gateway->transports(), ElementsAre("local", "tcp"));
}

TEST(ExporterTest, ManyThreadsStagePublishCancelAndDrop) {
  ExporterForTest gateway;
  const uint64_t free_bytes = gateway->stats().free_bytes;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const int64_t key = i % 50;  // shared between threads: duplicates and cancels collide
        Lease lease = gateway->Export(Pattern(64 + 100 * i, t), {.key = key, .readers = 1});
        if (i % 3 == 0) {
          const absl::Status ignored = gateway->Cancel(key);
        }
        if (i % 5 == 0 && lease.exported().ok()) {
          std::move(lease).Detach();
          const absl::Status ignored = gateway->Cancel(key);
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (int64_t key = 0; key < 50; ++key) {
    const absl::Status ignored = gateway->Cancel(key);
  }
  EXPECT_EQ(gateway->stats().free_bytes, free_bytes);
  EXPECT_EQ(gateway->stats().published, 0);
}

}  // namespace
}  // namespace tensorferry
