// engine/local between processes: what dies, stops, forks and restarts, and who is whose user.
#include <grp.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensorferry/base/error.h"
#include "tensorferry/engine/engine_testing.h"
#include "tensorferry/engine/local/local_export_engine.h"
#include "tensorferry/engine/local/local_pull_engine.h"
#include "tensorferry/engine/local/local_testing.h"
#include "tensorferry/engine/local/unix_socket.h"
#include "tensorferry/wire/local_messages.h"

namespace tensorferry::engine {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// The gateway here, workers in children. They are forked first: see ChildProcess.
class LocalProcessTest : public ::testing::Test {
 protected:
  void StartGateway() {
    auto engine = LocalExportEngine::Create({.socket_path = path_});
    ASSERT_TRUE(engine.ok()) << engine.status();
    gateway_ = *std::move(engine);
    ASSERT_TRUE(gateway_->Start(leases_.arena(), &leases_).ok());
  }
  struct Offer {
    PublishedLease lease;
    std::string descriptor;
  };
  Offer Publish(uint64_t nbytes, bool wants_done = false) {
    const PublishedLease lease = leases_.Add(nbytes);
    gateway_->Publish(lease);
    wire::Descriptor d = leases_.DescriptorOf(lease, {gateway_->way()});
    d.wants_done = wants_done;
    return {lease, Encoded(d)};
  }
  bool QuiescedIs(const std::vector<wire::LeaseRef>& refs) {
    return leases_.WaitUntil([&] { return leases_.quiesced().size() >= refs.size(); }) &&
           leases_.quiesced() == refs;
  }

  TempDir dir_;
  const std::string path_ = dir_ / "gw.sock";
  FakeLeaseSource leases_;
  std::unique_ptr<LocalExportEngine> gateway_;
};

TEST_F(LocalProcessTest, AWorkerReadsInAnotherProcess) {
  ChildProcess worker(MakeWorker);
  StartGateway();
  const Offer a = Publish(100'000), b = Publish(50'000, true);
  EXPECT_EQ(worker.Ask("view", a.descriptor), "ok");
  EXPECT_EQ(worker.Ask("copy", b.descriptor), "ok");
  EXPECT_TRUE(leases_.WaitUntil([&] { return leases_.done().size() == 1; }));
  EXPECT_THAT(leases_.done(), ElementsAre(b.lease.ref));
  EXPECT_FALSE(gateway_->Retire(a.lease.ref));
  EXPECT_TRUE(gateway_->Retire(b.lease.ref));
  EXPECT_EQ(worker.Ask("release"), "ok");
  EXPECT_TRUE(QuiescedIs({a.lease.ref}));
}

TEST_F(LocalProcessTest, AKilledWorkersClaimsEndAndOthersDoNot) {
  ChildProcess worker(MakeWorker), other(MakeWorker);
  StartGateway();
  const Offer both = Publish(100), one = Publish(100);
  ASSERT_EQ(worker.Ask("view", both.descriptor), "ok");
  ASSERT_EQ(worker.Ask("view", one.descriptor), "ok");
  ASSERT_EQ(other.Ask("view", both.descriptor), "ok");
  EXPECT_FALSE(gateway_->Retire(both.lease.ref));
  EXPECT_FALSE(gateway_->Retire(one.lease.ref));
  worker.Kill();
  EXPECT_TRUE(QuiescedIs({one.lease.ref}));
  EXPECT_EQ(other.Ask("same"), "yes");
  EXPECT_EQ(other.Ask("release"), "ok");
  EXPECT_TRUE(QuiescedIs({one.lease.ref, both.lease.ref}));
}

TEST_F(LocalProcessTest, AForkedChildDoesNotKeepADeadWorkersClaims) {
  ChildProcess worker(MakeWorker);
  StartGateway();
  const Offer offer = Publish(100);
  ASSERT_EQ(worker.Ask("view", offer.descriptor), "ok");
  const pid_t sleeper = std::stoi(worker.Ask("fork"));  // holds the socket
  EXPECT_FALSE(gateway_->Retire(offer.lease.ref));
  worker.Kill();
  EXPECT_TRUE(QuiescedIs({offer.lease.ref}));
  EXPECT_EQ(gateway_->workers(), 0u);
  EXPECT_EQ(::kill(sleeper, SIGKILL), 0);  // it was there all the time
}

TEST_F(LocalProcessTest, AStoppedWorkerKeepsItsClaims) {
  ChildProcess worker(MakeWorker), other(MakeWorker);
  StartGateway();
  const Offer kept = Publish(100'000), passing = Publish(100);
  ASSERT_EQ(worker.Ask("view", kept.descriptor), "ok");
  ASSERT_EQ(other.Ask("view", passing.descriptor), "ok");
  worker.Stop();
  EXPECT_FALSE(gateway_->Retire(kept.lease.ref));
  EXPECT_FALSE(gateway_->Retire(passing.lease.ref));
  ASSERT_EQ(other.Ask("release"), "ok");
  EXPECT_TRUE(
      QuiescedIs({passing.lease.ref}));  // the gateway looked, and did not give up the other
  worker.Continue();
  EXPECT_EQ(worker.Ask("same"), "yes");
  EXPECT_EQ(worker.Ask("release"), "ok");
  EXPECT_TRUE(QuiescedIs({passing.lease.ref, kept.lease.ref}));
}

TEST_F(LocalProcessTest, EightReadersOfOneLease) {
  std::vector<std::unique_ptr<ChildProcess>> workers;
  for (int i = 0; i < 8; ++i) workers.push_back(std::make_unique<ChildProcess>(MakeWorker));
  StartGateway();
  const Offer offer = Publish(200'000, true);
  for (auto& worker : workers) worker->Tell("view", offer.descriptor);
  for (auto& worker : workers) EXPECT_EQ(worker->Hear(), "ok");
  EXPECT_EQ(gateway_->workers(), 8u);
  EXPECT_FALSE(gateway_->Retire(offer.lease.ref));
  for (size_t i = 0; i < workers.size(); ++i) {
    EXPECT_THAT(leases_.quiesced(), IsEmpty());
    EXPECT_EQ(workers[i]->Ask("same"), "yes");
    EXPECT_EQ(workers[i]->Ask("release"), "ok");
    EXPECT_TRUE(leases_.WaitUntil([&] { return leases_.done().size() == i + 1; }));
  }
  EXPECT_TRUE(QuiescedIs({offer.lease.ref}));
}

TEST_F(LocalProcessTest, NothingIsLeftOfManyDeadWorkers) {
  std::vector<std::unique_ptr<ChildProcess>> workers;
  for (int i = 0; i < 10; ++i) workers.push_back(std::make_unique<ChildProcess>(MakeWorker));
  StartGateway();
  const Offer offer = Publish(100);
  const size_t fds = OpenFds(), mappings = MemfdMappings();
  for (auto& worker : workers) ASSERT_EQ(worker->Ask("view", offer.descriptor), "ok");
  EXPECT_EQ(MemfdMappings(), mappings + workers.size());
  for (auto& worker : workers) worker->Kill();
  EXPECT_TRUE(Eventually([&] { return gateway_->workers() == 0; }));
  EXPECT_TRUE(Eventually([&] { return OpenFds() == fds; }));
  EXPECT_EQ(MemfdMappings(), mappings);
  EXPECT_TRUE(gateway_->Retire(offer.lease.ref));
}

// The gateway in a child, the worker here.
class LocalGatewayProcessTest : public ::testing::Test {
 protected:
  absl::StatusOr<Landed> View(const wire::Descriptor& d, Instant deadline = kNever) {
    auto op = worker_->Start({.descriptor = &d, .length = d.nbytes, .deadline = deadline});
    return DriveOp(*op);
  }
  static std::vector<std::byte> BytesOf(const Landed& landed) {
    return {landed.bytes.begin(), landed.bytes.end()};
  }

  TempDir dir_;
  const std::string path_ = dir_ / "gw.sock";
  std::unique_ptr<PullEngine> worker_ = CreateLocalPullEngine({});
};

TEST_F(LocalGatewayProcessTest, ViewsSurviveAKilledGateway) {
  ChildProcess gateway(MakeGateway);
  ASSERT_EQ(gateway.Ask("start", path_), "ok");
  const wire::Descriptor d = Decoded(gateway.Ask("publish", "200000"));
  const auto view = View(d);
  ASSERT_TRUE(view.ok()) << view.status();
  const std::vector<std::byte> before = BytesOf(*view);
  gateway.Kill();
  EXPECT_EQ(BytesOf(*view), before);
  EXPECT_TRUE(Eventually([&] { return ReasonText(View(d).status()) == "unreachable"; }));
  EXPECT_EQ(BytesOf(*view), before);
}

TEST_F(LocalGatewayProcessTest, AGatewayRestartedOnTheSamePathIsFoundWithinThePull) {
  ChildProcess first(MakeGateway), second(MakeGateway);
  ASSERT_EQ(first.Ask("start", path_), "ok");
  const auto old_view = View(Decoded(first.Ask("publish", "1000")));
  ASSERT_TRUE(old_view.ok());
  const std::vector<std::byte> before = BytesOf(*old_view);
  first.Kill();
  ASSERT_EQ(second.Ask("instance", "2"), "ok");
  ASSERT_EQ(second.Ask("start", path_), "ok");  // over the stale file
  const auto view = View(Decoded(second.Ask("publish", "2000")));
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_THAT(view->bytes, SizeIs(2000));
  EXPECT_EQ(BytesOf(*old_view), before);
}

TEST_F(LocalGatewayProcessTest, ADescriptorOfTheFormerGatewayIsOfTheWrongInstance) {
  ChildProcess first(MakeGateway), second(MakeGateway);
  ASSERT_EQ(first.Ask("start", path_), "ok");
  const wire::Descriptor d = Decoded(first.Ask("publish", "1000"));
  first.Kill();
  ASSERT_EQ(second.Ask("instance", "2"), "ok");
  ASSERT_EQ(second.Ask("start", path_), "ok");
  EXPECT_EQ(ReasonText(View(d).status()), "wrong_instance");
}

TEST_F(LocalGatewayProcessTest, AStoppedGatewayDoesNotHoldUpConnectedWorkers) {
  ChildProcess gateway(MakeGateway);
  ASSERT_EQ(gateway.Ask("start", path_), "ok");
  const wire::Descriptor d = Decoded(gateway.Ask("publish", "1000"));
  ASSERT_TRUE(View(d).ok());
  gateway.Stop();
  EXPECT_TRUE(View(d).ok());
  gateway.Continue();
}

TEST_F(LocalGatewayProcessTest, AStoppedGatewayDoesNotHoldUpNewWorkersForLong) {
  ChildProcess gateway(MakeGateway);
  ASSERT_EQ(gateway.Ask("start", path_), "ok");
  const wire::Descriptor d = Decoded(gateway.Ask("publish", "1000"));
  gateway.Stop();
  worker_ = CreateLocalPullEngine({.connect_timeout = std::chrono::hours(1)});
  const Instant soon = SaturatingAdd(RealClock().Now(), milliseconds(30));
  EXPECT_EQ(ReasonText(View(d, soon).status()), "timed_out");
  worker_ = CreateLocalPullEngine({.connect_timeout = milliseconds(30)});
  EXPECT_EQ(ReasonText(View(d).status()), "unreachable");
  gateway.Continue();
  EXPECT_TRUE(Eventually([&] { return View(d).ok(); }));
}

TEST_F(LocalGatewayProcessTest, WhatDidNotAnswerIsNotAskedAgainForAWhile) {
  ChildProcess gateway(MakeGateway);
  ASSERT_EQ(gateway.Ask("start", path_), "ok");
  const wire::Descriptor d = Decoded(gateway.Ask("publish", "1000"));
  gateway.Stop();
  worker_ = CreateLocalPullEngine({.connect_timeout = milliseconds(500)});
  EXPECT_EQ(ReasonText(View(d).status()), "unreachable");
  EXPECT_EQ(ReasonText(worker_->CanTry(d)), "unreachable");
  auto op = worker_->Start({.descriptor = &d, .length = d.nbytes});
  EXPECT_EQ(op->Step(), PullOp::Progress::kDone);
  gateway.Continue();
}

// Needs root, to become somebody else.
class LocalUidTest : public LocalProcessTest {
 protected:
  static constexpr uid_t kNobody = 65534;

  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root to run a process as another user";
    ASSERT_EQ(::chmod(dir_.path().c_str(), 0777), 0);  // others see the socket's file
  }
  static void BecomeNobody() {
    if (::setgroups(0, nullptr) != 0 || ::setresgid(kNobody, kNobody, kNobody) != 0 ||
        ::setresuid(kNobody, kNobody, kNobody) != 0) {
      ::_exit(1);
    }
  }
};

TEST_F(LocalUidTest, AnotherUsersWorkerIsRefused) {
  ChildProcess worker([] {
    BecomeNobody();
    return MakeWorker();
  });
  StartGateway();
  const Offer offer = Publish(100);
  EXPECT_EQ(worker.Ask("view", offer.descriptor), "uid_mismatch");
  EXPECT_EQ(gateway_->workers(), 0u);
}

TEST_F(LocalUidTest, RootGetsNothingOfAnotherUsersGateway) {
  ChildProcess gateway([] {
    BecomeNobody();
    return MakeGateway();
  });
  ASSERT_EQ(gateway.Ask("start", path_), "ok");
  const wire::Descriptor d = Decoded(gateway.Ask("publish", "100"));
  auto worker = CreateLocalPullEngine({});
  auto op = worker->Start({.descriptor = &d, .length = 100});
  EXPECT_EQ(ReasonText(DriveOp(*op).status()), "uid_mismatch");
}

TEST_F(LocalUidTest, TheGatewayItselfChecksWhoConnects) {
  ChildProcess intruder([&]() -> ChildProcess::Handler {
    BecomeNobody();
    return [&](std::string_view, std::string_view) -> std::string {
      auto socket = ConnectUnix(path_);
      if (!socket.ok()) return ReasonText(socket.status());
      std::array<std::byte, wire::kLocalWelcomeBytes> buffer;
      for (;;) {
        auto packet = ReceiveWithFds(socket->get(), buffer);
        if (!packet.ok()) return ReasonText(packet.status());
        if (!packet->has_value()) continue;
        const auto welcome = wire::DecodeLocalWelcome(std::span(buffer).first((*packet)->size));
        if (!welcome.ok()) return "no welcome";
        return std::string(ReasonName(*ReasonFromNumber(welcome->status))) + " with " +
               std::to_string((*packet)->fds.size()) + " descriptors";
      }
    };
  });
  StartGateway();
  EXPECT_EQ(intruder.Ask("try"), "uid_mismatch");  // by the file's mode
  ASSERT_EQ(::chmod(path_.c_str(), 0777), 0);
  EXPECT_EQ(intruder.Ask("try"), "uid_mismatch with 0 descriptors");
  EXPECT_EQ(gateway_->workers(), 0u);
}

TEST_F(LocalProcessTest, AForkedChildIsRefusedAndDisturbsNobody) {
  StartGateway();
  const Offer offer = Publish(100);
  const wire::Descriptor d = Decoded(offer.descriptor);
  auto engine = CreateLocalPullEngine({});
  auto op = engine->Start({.descriptor = &d, .length = 100});
  auto view = DriveOp(*op);
  ASSERT_TRUE(view.ok()) << view.status();
  const pid_t child = ::fork();
  if (child == 0) {  // exits with what went wrong
    auto again = engine->Start({.descriptor = &d, .length = 100});
    if (again->Step() != PullOp::Progress::kDone) ::_exit(1);
    if (ReasonText(again->TakeResult().status()) != "lane_off") ::_exit(2);
    if (ReasonText(engine->CanTry(d)) != "lane_off") ::_exit(3);
    view = absl::CancelledError();
    again.reset();
    op.reset();
    engine.reset();
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(gateway_->Retire(offer.lease.ref));  // the parent's claim is as it was
  EXPECT_EQ(gateway_->workers(), 1u);
  view = absl::CancelledError();
  EXPECT_TRUE(QuiescedIs({offer.lease.ref}));
}

}  // namespace
}  // namespace tensorferry::engine
