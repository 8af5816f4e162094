#include "tensorferry/puller/puller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include "tensorferry/base/error.h"
#include "tensorferry/base/temp_dir_testing.h"
#include "tensorferry/engine/fault/fault.h"
#include "tensorferry/engine/file/shm_testing.h"
#include "tensorferry/exporter/exporter.h"
#include "tensorferry/exporter/exporter_testing.h"
#include "tensorferry/puller/puller_testing.h"

namespace tensorferry {
namespace {

using engine::Fault;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PullerTest, BothTransportsBringTheBytesOfEverySize) {
  ExporterForTest gateway;
  const auto puller = MakePuller();
  for (const size_t nbytes :
       {size_t{1}, size_t{63}, size_t{64}, size_t{65536}, size_t{3000001}, size_t{4} << 20}) {
    const auto pattern = Pattern(nbytes, nbytes);
    const Lease lease = gateway->Export(pattern, {});
    const auto local = puller->Pull(HandleOf(lease, kShm), PatientOptions());
    ASSERT_TRUE(local.ok()) << local.status();
    EXPECT_EQ(local->transport(), "local");
    // A quarter of the arena is what one worker may hold.
    EXPECT_EQ(local->borrowed(), nbytes <= 2 << 20);
    EXPECT_TRUE(std::ranges::equal(local->bytes(), pattern));
    const auto tcp = puller->Pull(HandleOf(lease, kRemote), PatientOptions());
    ASSERT_TRUE(tcp.ok()) << tcp.status();
    EXPECT_EQ(tcp->transport(), "tcp");
    EXPECT_FALSE(tcp->borrowed());
    EXPECT_TRUE(std::ranges::equal(tcp->bytes(), pattern));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tcp->bytes().data()) % 64, 0);
  }
}

TEST(PullerTest, AnEmptyTensorTravelsLikeAnyOther) {
  ExporterForTest gateway;
  const auto puller = MakePuller();
  const Lease lease = gateway->Export({}, {});
  for (const Lease::Ways ways : {kShm, kRemote}) {
    const auto view = puller->Pull(HandleOf(lease, ways), PatientOptions());
    ASSERT_TRUE(view.ok()) << view.status();
    EXPECT_EQ(view->bytes().size(), 0);
  }
}

TEST(PullerTest, IntoTheCallersMemory) {
  ExporterForTest gateway;
  const auto puller = MakePuller([](PullerOptions* o) { o->landing_bytes = 0; });
  const auto pattern = Pattern(3 << 20, 1);
  const Lease lease = gateway->Export(pattern, {});
  for (const Lease::Ways ways : {kShm, kRemote}) {
    std::vector<std::byte> into(pattern.size());
    const auto pulled = puller->PullInto(HandleOf(lease, ways), into, PatientOptions());
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    EXPECT_EQ(pulled->transport, ways.shm ? "local" : "tcp");
    EXPECT_EQ(into, pattern);
  }
  std::vector<std::byte> short_buffer(pattern.size() - 1);
  EXPECT_EQ(ReasonOf(puller->PullInto(HandleOf(lease), short_buffer, PatientOptions()).status()),
            Reason::kSizeMismatch);
}

TEST(PullerTest, TheBestWayIsTakenFirst) {
  ExporterForTest gateway;
  const auto puller = MakePuller();
  EXPECT_THAT(puller->transports(), ElementsAre("local", "tcp"));
  const Lease lease = gateway->Export(Pattern(100, 1), {});
  EXPECT_EQ(puller->Pull(HandleOf(lease), PatientOptions())->transport(), "local");
}

TEST(PullerTest, FilesAreReadWhereTheyAreSwitchedOn) {
  const TempDir dir;
  const std::string name = "smg-tokenspeed-7-1-0";
  const auto pattern = Pattern(5 << 20, 1);
  const Handle handle{.transport = "file", .descriptor = name, .nbytes = pattern.size()};
  engine::PutFile(dir / name, {reinterpret_cast<const char*>(pattern.data()), pattern.size()});
  EXPECT_EQ(ReasonOf(MakePuller()->Pull(handle, PatientOptions()).status()), Reason::kNoCommonWay);
  const auto puller = MakePuller([&](PullerOptions* o) {
    o->file = engine::FilePullOptions{.directory = dir.path(), .unlink = false};
  });
  EXPECT_THAT(puller->transports(), ElementsAre("local", "file", "tcp"));
  const auto view = puller->Pull(handle, PatientOptions());
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->transport(), "file");
  EXPECT_FALSE(view->borrowed());
  EXPECT_TRUE(std::ranges::equal(view->bytes(), pattern));
  std::vector<std::byte> into(pattern.size());
  ASSERT_TRUE(puller->PullInto(handle, into, PatientOptions()).ok());
  EXPECT_EQ(into, pattern);
}

TEST(PullerTest, WhenOneWayFailsTheNextIsTried) {
  ExporterForTest gateway;
  const auto pattern = Pattern(100'000, 1);
  const Lease lease = gateway->Export(pattern, {});
  for (const Reason reason : {Reason::kPeerClosed, Reason::kUnreachable, Reason::kUidMismatch,
                              Reason::kProtocol, Reason::kTimedOut}) {
    const auto puller =
        FaultyPuller("local", [&](const engine::PullRequest&) { return Failing(reason); });
    const auto view = puller->Pull(HandleOf(lease), PatientOptions());
    ASSERT_TRUE(view.ok()) << view.status();
    EXPECT_EQ(view->transport(), "tcp");
    EXPECT_TRUE(std::ranges::equal(view->bytes(), pattern));
  }
}

TEST(PullerTest, AnEndedLeaseIsNotAskedForAgainElsewhere) {
  ExporterForTest gateway;
  const Lease lease = gateway->Export(Pattern(100, 1), {});
  std::atomic<int> asked = 0;
  const auto puller = MakePuller([&](PullerOptions* o) {
    o->wrap = [&](std::unique_ptr<engine::PullEngine> inner) {
      return WrapInFaults(std::move(inner), [&](const engine::PullRequest&) {
        ++asked;
        return Failing(Reason::kLeaseEnded);
      });
    };
  });
  EXPECT_EQ(ReasonOf(puller->Pull(HandleOf(lease), PatientOptions()).status()),
            Reason::kLeaseEnded);
  EXPECT_EQ(asked, 1);
}

TEST(PullerTest, AllWaysFailingTellsOfEach) {
  ExporterForTest gateway;
  const Lease lease = gateway->Export(Pattern(100, 1), {});
  const auto puller = MakePuller([&](PullerOptions* o) {
    o->wrap = [&](std::unique_ptr<engine::PullEngine> inner) {
      return WrapInFaults(std::move(inner),
                          [](const engine::PullRequest&) { return Failing(Reason::kPeerClosed); });
    };
  });
  const absl::Status status = puller->Pull(HandleOf(lease), PatientOptions()).status();
  EXPECT_EQ(ReasonOf(status), Reason::kPeerClosed);
  EXPECT_THAT(status.message(), HasSubstr("local:"));
  EXPECT_TRUE(IsRetryable(status));
}

TEST(PullerTest, ALeaseThatHasEndedIsATypedRefusalOnEveryWay) {
  ExporterForTest gateway;
  const auto puller = MakePuller();
  Handle shm, remote;
  {
    const Lease lease = gateway->Export(Pattern(100, 1), {});
    shm = HandleOf(lease, kShm);
    remote = HandleOf(lease, kRemote);
  }
  EXPECT_EQ(ReasonOf(puller->Pull(shm, PatientOptions()).status()), Reason::kLeaseEnded);
  EXPECT_EQ(ReasonOf(puller->Pull(remote, PatientOptions()).status()), Reason::kLeaseEnded);
  // The slot's next lease is another one.
  const Lease next = gateway->Export(Pattern(100, 2), {});
  EXPECT_EQ(ReasonOf(puller->Pull(shm, PatientOptions()).status()), Reason::kLeaseEnded);
  EXPECT_EQ(ReasonOf(puller->Pull(remote, PatientOptions()).status()), Reason::kLeaseEnded);
}

TEST(PullerTest, AForgedTokenIsRefusedOnEveryWay) {
  ExporterForTest gateway;
  const auto puller = MakePuller();
  const Lease lease = gateway->Export(Pattern(100, 1), {});
  for (const Lease::Ways ways : {kShm, kRemote}) {
    Handle handle = HandleOf(lease, ways);
    wire::Descriptor d = *wire::DecodeDescriptor(std::as_bytes(std::span(handle.descriptor)));
    d.lease.token[15] ^= 1;
    handle.descriptor = *wire::EncodeDescriptor(d);
    EXPECT_EQ(ReasonOf(puller->Pull(handle, PatientOptions()).status()), Reason::kBadToken);
    d.lease.token = {};
    handle.descriptor = *wire::EncodeDescriptor(d);
    EXPECT_EQ(ReasonOf(puller->Pull(handle, PatientOptions()).status()), Reason::kBadToken);
  }
}

TEST(PullerTest, AForgedLengthIsRefusedOnEveryWay) {
  ExporterForTest gateway;
  const auto puller = MakePuller();
  const Lease lease = gateway->Export(Pattern(100, 1), {});
  for (const Lease::Ways ways : {kShm, kRemote}) {
    for (const uint64_t nbytes : {uint64_t{101}, uint64_t{1} << 20}) {
      Handle handle = HandleOf(lease, ways);
      wire::Descriptor d = *wire::DecodeDescriptor(std::as_bytes(std::span(handle.descriptor)));
      d.nbytes = nbytes;
      handle.nbytes = nbytes;
      handle.descriptor = *wire::EncodeDescriptor(d);
      EXPECT_EQ(ReasonOf(puller->Pull(handle, PatientOptions()).status()), Reason::kOutOfRange);
    }
  }
}

TEST(PullerTest, AnyByteOfTheDescriptorFlippedIsRefused) {
  ExporterForTest gateway;
  const auto puller = MakePuller();
  const Lease lease = gateway->Export(Pattern(100, 1), {});
  const Handle good = HandleOf(lease);
  for (size_t i = 0; i < good.descriptor.size(); ++i) {
    Handle bad = good;
    bad.descriptor[i] = static_cast<char>(bad.descriptor[i] ^ 0x40);
    EXPECT_FALSE(puller->Pull(bad, PatientOptions()).ok()) << "byte " << i;
  }
  EXPECT_TRUE(puller->Pull(good, PatientOptions()).ok());
}

TEST(PullerTest, WhatIsKnownToBeWrongNeverReachesTheNetwork) {
  ExporterForTest gateway;
  std::atomic<int> asked = 0;
  const auto puller = MakePuller([&](PullerOptions* o) {
    o->wrap = [&](std::unique_ptr<engine::PullEngine> inner) {
      return WrapInFaults(std::move(inner), [&](const engine::PullRequest&) {
        ++asked;
        return Fault{};
      });
    };
  });
  const Lease lease = gateway->Export(Pattern(100, 1), {.key = 5});
  const Handle good = HandleOf(lease);
  const auto reason = [&](Handle handle, PullOptions options = PatientOptions()) {
    return ReasonOf(puller->Pull(handle, options).status());
  };
  Handle bad = good;
  bad.transport = "carrier-pigeon";
  EXPECT_EQ(reason(bad), Reason::kUnknownTransport);
  bad = good;
  bad.nbytes = 99;
  EXPECT_EQ(reason(bad), Reason::kSizeMismatch);
  bad = good;
  bad.descriptor.clear();
  EXPECT_EQ(reason(bad), Reason::kTooShort);
  EXPECT_EQ(reason(good, {.timeout = seconds(60), .key = 6}), Reason::kKeyMismatch);
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(reason(good, {.timeout = seconds(60), .key = 5}), std::nullopt);
}

TEST(PullerTest, NoCommonWaySaysWhatIsEnabled) {
  ExporterForTest gateway;
  const Lease lease = gateway->Export(Pattern(100, 1), {});
  const auto puller = MakePuller([](PullerOptions* o) { o->tcp = false; });
  const absl::Status status = puller->Pull(HandleOf(lease, kRemote), PatientOptions()).status();
  EXPECT_EQ(ReasonOf(status), Reason::kNoCommonWay);
  EXPECT_THAT(status.message(), HasSubstr("local"));
}

TEST(PullerTest, AGatewayOutsideTheAllowListIsNotDialled) {
  ExporterForTest gateway;
  const Lease lease = gateway->Export(Pattern(100, 1), {});
  const auto puller = MakePuller([](PullerOptions* o) {
    o->allow = *AllowList::Parse(std::vector<std::string>{"192.0.2.0/24"});
  });
  const absl::Status status = puller->Pull(HandleOf(lease, kRemote), PatientOptions()).status();
  EXPECT_EQ(ReasonOf(status), Reason::kNotAllowed);
  EXPECT_THAT(status.message(), HasSubstr("127.0.0.1"));
  EXPECT_THAT(status.message(), HasSubstr("192.0.2.0/24"));
}

TEST(PullerTest, ATornTransferIsCaughtByTheChecksumAndMendedByTheNextWay) {
  ExporterForTest gateway([](ExporterOptions* o) { o->checksum = true; });
  const auto pattern = Pattern(100'000, 1);
  const Lease lease = gateway->Export(pattern, {});
  const auto puller = FaultyPuller(
      "local", [](const engine::PullRequest&) { return Fault{.kind = Fault::Kind::kTear}; });
  const auto view = puller->Pull(HandleOf(lease), PatientOptions());
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->transport(), "tcp");
  EXPECT_TRUE(std::ranges::equal(view->bytes(), pattern));
  const absl::Status torn = puller->Pull(HandleOf(lease, kShm), PatientOptions()).status();
  EXPECT_EQ(ReasonOf(torn), Reason::kChecksum);
  EXPECT_TRUE(IsRetryable(torn));
}

TEST(PullerTest, AHangingWayLeavesTimeForTheNext) {
  ExporterForTest gateway;
  const Lease lease = gateway->Export(Pattern(100, 1), {});
  const auto puller = FaultyPuller(
      "local", [](const engine::PullRequest&) { return Fault{.kind = Fault::Kind::kHang}; });
  const auto view = puller->Pull(HandleOf(lease), {.timeout = milliseconds(200)});
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->transport(), "tcp");
}

TEST(PullerTest, TheTimeoutEndsAHangingPull) {
  ExporterForTest gateway;
  const Lease lease = gateway->Export(Pattern(100, 1), {});
  const auto puller = FaultyPuller(
      "tcp", [](const engine::PullRequest&) { return Fault{.kind = Fault::Kind::kHang}; });
  const absl::Status status =
      puller->Pull(HandleOf(lease, kRemote), {.timeout = milliseconds(20)}).status();
  EXPECT_EQ(ReasonOf(status), Reason::kTimedOut);
  EXPECT_TRUE(IsRetryable(status));
}

TEST(PullerTest, CancellationEndsAHangingPull) {
  ExporterForTest gateway;
  const Lease lease = gateway->Export(Pattern(100, 1), {});
  std::promise<void> begun;
  const auto puller = FaultyPuller("tcp", [&](const engine::PullRequest&) {
    begun.set_value();
    return Fault{.kind = Fault::Kind::kHang};
  });
  const Cancellation cancel = Cancellation::Create();
  std::thread canceller([&] {
    begun.get_future().wait();
    cancel.Cancel();
  });
  const auto view =
      puller->Pull(HandleOf(lease, kRemote), {.timeout = seconds(600), .cancel = cancel});
  canceller.join();
  EXPECT_EQ(ReasonOf(view.status()), Reason::kCancelled);
  EXPECT_EQ(puller->stats().landing_used_bytes, 0);
}

TEST(PullerTest, AnInterruptedCallerIsAskedForAndEndsItsPulls) {
  ExporterForTest gateway;
  const Lease lease = gateway->Export(Pattern(100, 1), {});
  const auto puller = FaultyPuller(
      "tcp", [&](const engine::PullRequest&) { return Fault{.kind = Fault::Kind::kHang}; });
  const std::thread::id here = std::this_thread::get_id();
  int asked = 0;
  const auto on_the_second = [&] {
    EXPECT_EQ(std::this_thread::get_id(), here);
    return ++asked >= 2;
  };
  const PullOptions options{.timeout = seconds(600), .interrupted = on_the_second};
  const Handle handle = HandleOf(lease, kRemote);
  EXPECT_EQ(ReasonOf(puller->Pull(handle, options).status()), Reason::kCancelled);
  EXPECT_EQ(asked, 2);
  // More than are under way at a time.
  for (const auto& view : puller->PullAll(std::vector<Handle>(40, handle), options)) {
    EXPECT_EQ(ReasonOf(view.status()), Reason::kCancelled);
  }
  EXPECT_EQ(puller->stats().landing_used_bytes, 0);
}

TEST(PullerTest, WaitingForLandingMemoryHasATimeOfItsOwn) {
  ExporterForTest gateway;
  const Lease lease = gateway->Export(Pattern(1 << 20, 1), {});
  const Handle handle = HandleOf(lease, kRemote);
  const auto puller = *Puller::Create({.landing_bytes = 1 << 20, .prefault = false});
  absl::StatusOr<View> held = puller->Pull(handle, PatientOptions());
  ASSERT_TRUE(held.ok()) << held.status();
  const PullOptions impatient{.timeout = seconds(600), .landing_timeout = milliseconds(10)};
  EXPECT_EQ(ReasonOf(puller->Pull(handle, impatient).status()), Reason::kLandingFull);

  absl::StatusOr<View> late;
  const PullOptions patient{.timeout = seconds(2), .landing_timeout = seconds(600)};
  std::thread waiter([&] { late = puller->Pull(handle, patient); });
  while (puller->stats().waiting_for_landing == 0) std::this_thread::yield();
  // One that began later, and has the same `timeout` for all: that is over when it ends.
  EXPECT_EQ(ReasonOf(puller->Pull(handle, {.timeout = patient.timeout}).status()),
            Reason::kLandingFull);
  held = absl::StatusOr<View>();
  waiter.join();
  EXPECT_TRUE(late.ok()) << late.status();
}

TEST(PullerTest, ClosingEndsThePullsOfEveryThreadAndAllThatComeLater) {
  ExporterForTest gateway;
  const Lease lease = gateway->Export(Pattern(100, 1), {});
  const Handle handle = HandleOf(lease, kRemote);
  std::promise<void> begun;
  std::atomic<bool> first = true;
  auto puller = FaultyPuller("tcp", [&](const engine::PullRequest&) {
    if (first.exchange(false)) begun.set_value();
    return Fault{.kind = Fault::Kind::kHang};
  });
  absl::Status waited;
  std::thread waiter([&] { waited = puller->Pull(handle, {.timeout = seconds(600)}).status(); });
  begun.get_future().wait();
  std::promise<absl::Status> ended;
  puller->PullAsync(handle, {.timeout = seconds(600)},
                    [&](absl::StatusOr<View> view) { ended.set_value(view.status()); });
  puller->Close();
  std::future<absl::Status> called = ended.get_future();
  ASSERT_EQ(called.wait_for(seconds(0)), std::future_status::ready);
  EXPECT_EQ(ReasonOf(called.get()), Reason::kShutDown);
  waiter.join();
  EXPECT_EQ(ReasonOf(waited), Reason::kShutDown);

  puller->Close();
  EXPECT_EQ(ReasonOf(puller->Pull(handle, {}).status()), Reason::kShutDown);
  absl::Status late;
  puller->PullAsync(handle, {}, [&](absl::StatusOr<View> view) { late = view.status(); });
  EXPECT_EQ(ReasonOf(late), Reason::kShutDown);
}

TEST(PullerTest, DestroyingThePullerEndsItsAsynchronousPulls) {
  ExporterForTest gateway;
  const Lease lease = gateway->Export(Pattern(100, 1), {});
  std::promise<absl::Status> ended;
  auto puller = FaultyPuller(
      "tcp", [](const engine::PullRequest&) { return Fault{.kind = Fault::Kind::kHang}; });
  puller->PullAsync(HandleOf(lease, kRemote), {.timeout = seconds(600)},
                    [&](absl::StatusOr<View> view) { ended.set_value(view.status()); });
  puller.reset();
  EXPECT_EQ(ReasonOf(ended.get_future().get()), Reason::kShutDown);
}

TEST(PullerTest, ViewsOutliveThePullerAndTheLease) {
  ExporterForTest gateway;
  const auto pattern = Pattern(1 << 20, 1);
  Lease lease = gateway->Export(pattern, {});
  auto puller = MakePuller();
  const View local = *puller->Pull(HandleOf(lease, kShm), PatientOptions());
  const View tcp = *puller->Pull(HandleOf(lease, kRemote), PatientOptions());
  lease = Lease();
  const auto noise = Pattern(1 << 20, 2);
  // The claim keeps the bytes from being reused.
  for (int i = 0; i < 16; ++i) gateway->Export(noise, {.readers = 1}).Detach();
  puller.reset();
  EXPECT_TRUE(std::ranges::equal(local.bytes(), pattern));
  EXPECT_TRUE(std::ranges::equal(tcp.bytes(), pattern));
}

TEST(PullerTest, BeyondItsShareOfTheArenaAWorkerGetsCopies) {
  ExporterForTest gateway;  // 8 MiB, of which 2 MiB may be held
  const auto puller = MakePuller();
  const auto pattern = Pattern(1 << 20, 1);
  std::vector<Lease> leases;
  std::vector<View> views;
  int borrowed = 0;
  for (int i = 0; i < 4; ++i) {
    leases.push_back(gateway->Export(pattern, {}));
    auto view = puller->Pull(HandleOf(leases.back(), kShm), PatientOptions());
    ASSERT_TRUE(view.ok()) << view.status();
    EXPECT_EQ(view->transport(), "local");
    EXPECT_TRUE(std::ranges::equal(view->bytes(), pattern));
    borrowed += view->borrowed();
    views.push_back(*std::move(view));
  }
  EXPECT_EQ(borrowed, 2);
}

TEST(PullerTest, LandingSpaceIsServedFirstComeFirstServed) {
  ExporterForTest gateway;
  const auto puller = MakePuller([](PullerOptions* o) { o->landing_bytes = 4 << 16; });
  const auto pattern = Pattern(1 << 16, 1);
  const Lease lease = gateway->Export(pattern, {});
  const Handle handle = HandleOf(lease, kRemote);
  std::atomic<int> good = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 200; ++t) {
    threads.emplace_back([&] {
      const auto view = puller->Pull(handle, PatientOptions());
      good += view.ok() && std::ranges::equal(view->bytes(), pattern);
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(good, 200);
  EXPECT_EQ(puller->stats().landing_used_bytes, 0);
  EXPECT_EQ(puller->stats().waiting_for_landing, 0);
}

TEST(PullerTest, NoLandingSpaceInTimeNamesTheSetting) {
  ExporterForTest gateway;
  const auto puller = MakePuller([](PullerOptions* o) { o->landing_bytes = 1 << 20; });
  const Lease lease = gateway->Export(Pattern(1 << 20, 1), {});
  const View held = *puller->Pull(HandleOf(lease, kRemote), PatientOptions());
  const absl::Status status =
      puller->Pull(HandleOf(lease, kRemote), {.timeout = milliseconds(10)}).status();
  EXPECT_EQ(ReasonOf(status), Reason::kLandingFull);
  EXPECT_THAT(status.message(), HasSubstr("landing_bytes"));
}

TEST(PullerTest, PullAllReportsEachInOrder) {
  ExporterForTest gateway;
  const auto puller = MakePuller();
  std::vector<Lease> leases;
  std::vector<Handle> handles;
  for (int i = 0; i < 40; ++i) {
    leases.push_back(gateway->Export(Pattern(1000 * i, i), {}));
    handles.push_back(HandleOf(leases.back(), i % 2 == 0 ? kRemote : kShm));
  }
  handles[7].descriptor[20] ^= 1;
  leases[8] = Lease();
  const auto views = puller->PullAll(handles, PatientOptions());
  ASSERT_EQ(views.size(), 40);
  for (int i = 0; i < 40; ++i) {
    if (i == 7) {
      EXPECT_EQ(ReasonOf(views[i].status()), Reason::kBadDescriptor);
    } else if (i == 8) {
      EXPECT_EQ(ReasonOf(views[i].status()), Reason::kLeaseEnded);
    } else {
      ASSERT_TRUE(views[i].ok()) << i << ": " << views[i].status();
      EXPECT_TRUE(std::ranges::equal(views[i]->bytes(), Pattern(1000 * i, i))) << i;
    }
  }
  EXPECT_TRUE(puller->PullAll({}, PatientOptions()).empty());
}

TEST(PullerTest, PullAllTakesAKeyForEach) {
  ExporterForTest gateway;
  const auto puller = MakePuller();
  std::vector<Lease> leases;
  std::vector<Handle> handles;
  for (int64_t key = 0; key < 3; ++key) {
    leases.push_back(gateway->Export(Pattern(100, 1), {.key = key}));
    handles.push_back(HandleOf(leases.back()));
  }
  const std::optional<int64_t> keys[] = {0, std::nullopt, 7};
  auto views = puller->PullAll(handles, PatientOptions(), keys);
  ASSERT_EQ(views.size(), 3);
  EXPECT_TRUE(views[0].ok()) << views[0].status();
  EXPECT_TRUE(views[1].ok()) << views[1].status();
  EXPECT_EQ(ReasonOf(views[2].status()), Reason::kKeyMismatch);

  views = puller->PullAll(handles, PatientOptions(), std::span(keys).first(2));
  ASSERT_EQ(views.size(), 3);
  for (const auto& view : views) EXPECT_EQ(ReasonOf(view.status()), Reason::kBadOption);
}

TEST(PullerTest, AsynchronousPullsFromManyThreads) {
  ExporterForTest gateway;
  const auto puller = MakePuller();
  std::vector<Lease> leases;
  for (int i = 0; i < 16; ++i) leases.push_back(gateway->Export(Pattern(50'000, i), {}));
  constexpr int kEach = 50;
  std::atomic<int> good = 0;
  std::atomic<int> left = 4 * kEach;
  std::promise<void> all;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        const int which = (t + i) % 16;
        puller->PullAsync(HandleOf(leases[which], i % 2 == 0 ? kRemote : kShm), PatientOptions(),
                          [&, which](absl::StatusOr<View> view) {
                            good += view.ok() &&
                                    std::ranges::equal(view->bytes(), Pattern(50'000, which));
                            if (--left == 0) all.set_value();
                          });
      }
    });
  }
  for (std::thread& t : threads) t.join();
  all.get_future().wait();
  EXPECT_EQ(good, 4 * kEach);
}

TEST(PullerTest, AsynchronousPullInto) {
  ExporterForTest gateway;
  const auto puller = MakePuller();
  const auto pattern = Pattern(100'000, 1);
  const Lease lease = gateway->Export(pattern, {});
  std::vector<std::byte> into(pattern.size());
  std::promise<absl::StatusOr<PulledInto>> done;
  puller->PullIntoAsync(HandleOf(lease, kRemote), into, PatientOptions(),
                        [&](absl::StatusOr<PulledInto> p) { done.set_value(std::move(p)); });
  const auto pulled = done.get_future().get();
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(into, pattern);
}

}  // namespace
}  // namespace tensorferry
