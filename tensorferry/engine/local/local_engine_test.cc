// Both sides of engine/local in one process.
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/host.h"
#include "tensorferry/engine/engine_testing.h"
#include "tensorferry/engine/local/local_export_engine.h"
#include "tensorferry/engine/local/local_pull_engine.h"
#include "tensorferry/engine/local/local_testing.h"

namespace tensorferry::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kArena = 64 << 20;

class LocalEngineTest : public ::testing::Test {
 protected:
  LocalEngineTest() : leases_({.arena_bytes = kArena}) {}

  static std::unique_ptr<LocalExportEngine> StartGateway(FakeLeaseSource& leases,
                                                         LocalExportOptions options) {
    auto engine = LocalExportEngine::Create(options);
    if (!engine.ok()) ADD_FAILURE() << engine.status();
    const absl::Status started = (*engine)->Start(leases.arena(), &leases);
    EXPECT_TRUE(started.ok()) << started;
    return *std::move(engine);
  }
  void StartGateway(LocalExportOptions options) {
    options.socket_path = path_;
    gateway_ = StartGateway(leases_, options);
  }
  void StartGateway() { StartGateway(LocalExportOptions{}); }

  wire::Descriptor Publish(uint64_t nbytes) {
    lease_ = leases_.Add(nbytes);
    gateway_->Publish(lease_);
    return leases_.DescriptorOf(lease_, {gateway_->way()});
  }
  absl::StatusOr<Landed> View(const wire::Descriptor& d, PullEngine& engine) {
    auto op = engine.Start({.descriptor = &d, .length = d.nbytes});
    return DriveOp(*op);
  }
  absl::StatusOr<Landed> View(const wire::Descriptor& d) { return View(d, *worker_); }
  std::string Reason(const wire::Descriptor& d) { return ReasonText(View(d).status()); }
  bool Same(std::span<const std::byte> bytes, const PublishedLease& lease) {
    return std::ranges::equal(bytes, leases_.BytesOf(lease));
  }

  TempDir dir_;
  const std::string path_ = dir_ / "gw.sock";
  FakeLeaseSource leases_;
  PublishedLease lease_;  // the last one published
  std::unique_ptr<LocalExportEngine> gateway_;
  std::unique_ptr<PullEngine> worker_ = CreateLocalPullEngine({});
};

TEST_F(LocalEngineTest, SaysWhatItIs) {
  StartGateway();
  EXPECT_EQ(gateway_->transport(), "local");
  EXPECT_EQ(worker_->transport(), "local");
  EXPECT_FALSE(gateway_->one_sided());
  EXPECT_TRUE(worker_->borrows());
  EXPECT_EQ(std::get<wire::LocalWay>(gateway_->way()), (wire::LocalWay{ThisHost().boot_id, path_}));
}

TEST_F(LocalEngineTest, ViewsTheArenaItself) {
  StartGateway();
  const wire::Descriptor d = Publish(100'000);
  const auto landed = View(d);
  ASSERT_TRUE(landed.ok()) << landed.status();
  ASSERT_TRUE(Same(landed->bytes, lease_));
  leases_.BytesOf(lease_)[5] ^= std::byte{0xff};
  EXPECT_TRUE(Same(landed->bytes, lease_));
  EXPECT_NE(landed->hold, nullptr);
}

TEST_F(LocalEngineTest, AViewOfAConnectedGatewayIsDoneInOneStep) {
  StartGateway();
  ASSERT_TRUE(View(Publish(10)).ok());
  const wire::Descriptor d = Publish(8 << 20);
  auto op = worker_->Start({.descriptor = &d, .length = d.nbytes});
  EXPECT_EQ(op->Step(), PullOp::Progress::kDone);
  EXPECT_TRUE(op->TakeResult().ok());
}

TEST_F(LocalEngineTest, CopiesPieceByPiece) {
  StartGateway();
  const wire::Descriptor d = Publish((9 << 20) + 13);
  std::vector<std::byte> memory(d.nbytes);
  ASSERT_TRUE(View(d).ok());  // connects
  auto op = worker_->Start({.descriptor = &d, .length = d.nbytes, .into = memory});
  EXPECT_EQ(op->Step(), PullOp::Progress::kMoved);
  EXPECT_FALSE(gateway_->Retire(lease_.ref));  // claimed while it is being copied
  EXPECT_EQ(op->Step(), PullOp::Progress::kMoved);
  EXPECT_EQ(op->Step(), PullOp::Progress::kDone);
  const auto landed = op->TakeResult();
  ASSERT_TRUE(landed.ok());
  EXPECT_EQ(landed->bytes.data(), memory.data());
  EXPECT_EQ(landed->hold, nullptr);
  EXPECT_TRUE(Same(memory, lease_));
  EXPECT_TRUE(leases_.WaitUntil([&] { return leases_.quiesced().size() == 1; }));
}

TEST_F(LocalEngineTest, PartsOfALease) {
  StartGateway();
  const wire::Descriptor d = Publish(1000);
  std::vector<std::byte> memory(20);
  auto op = worker_->Start({.descriptor = &d, .offset = 980, .length = 20, .into = memory});
  ASSERT_TRUE(DriveOp(*op).ok());
  EXPECT_TRUE(std::ranges::equal(memory, leases_.BytesOf(lease_).subspan(980)));
  op = worker_->Start({.descriptor = &d, .offset = 7, .length = 3});
  const auto landed = DriveOp(*op);
  ASSERT_TRUE(landed.ok());
  EXPECT_TRUE(std::ranges::equal(landed->bytes, leases_.BytesOf(lease_).subspan(7, 3)));
  op = worker_->Start({.descriptor = &d, .offset = 981, .length = 20, .into = memory});
  EXPECT_EQ(ReasonText(DriveOp(*op).status()), "out_of_range");
  op = worker_->Start({.descriptor = &d, .length = 21, .into = memory});
  EXPECT_EQ(ReasonText(DriveOp(*op).status()), "size_mismatch");
}

TEST_F(LocalEngineTest, NothingAtAll) {
  StartGateway();
  const wire::Descriptor d = Publish(0);
  const auto landed = View(d);
  ASSERT_TRUE(landed.ok()) << landed.status();
  EXPECT_THAT(landed->bytes, IsEmpty());
}

TEST_F(LocalEngineTest, RefusalsAreTyped) {
  StartGateway();
  const wire::Descriptor good = Publish(100);
  wire::Descriptor d = good;
  d.lease.token[0] ^= 1;
  EXPECT_EQ(Reason(d), "bad_token");
  d = good;
  d.lease.generation += 1;
  EXPECT_EQ(Reason(d), "lease_ended");
  d = good;
  d.lease.id += 1;
  EXPECT_EQ(Reason(d), "lease_ended");
  EXPECT_EQ(Reason(good), "ok");
  EXPECT_TRUE(gateway_->Retire(lease_.ref));
  EXPECT_EQ(Reason(good), "lease_ended");
}

TEST_F(LocalEngineTest, AViewKeepsItsLeaseUntilItIsDropped) {
  StartGateway();
  auto first = View(Publish(100));
  const PublishedLease lease = lease_;
  ASSERT_TRUE(first.ok());
  std::shared_ptr<const void> second = first->hold;
  EXPECT_FALSE(gateway_->Retire(lease.ref));
  first->hold.reset();
  EXPECT_THAT(leases_.quiesced(), IsEmpty());
  std::thread([&] { second.reset(); }).join();  // on any thread
  EXPECT_TRUE(leases_.WaitUntil([&] { return !leases_.quiesced().empty(); }));
  EXPECT_THAT(leases_.quiesced(), ElementsAre(lease.ref));
  // And not a second time, when others end.
  auto other = View(Publish(100));
  EXPECT_FALSE(gateway_->Retire(lease_.ref));
  other = absl::CancelledError();
  EXPECT_TRUE(leases_.WaitUntil([&] { return leases_.quiesced().size() == 2; }));
  EXPECT_THAT(leases_.quiesced(), ElementsAre(lease.ref, lease_.ref));
}

TEST_F(LocalEngineTest, TellsOfEachReaderWhereReadersCount) {
  StartGateway();
  wire::Descriptor d = Publish(100);
  { const auto uncounted = View(d); }
  std::vector<std::byte> memory(100);
  auto uncounted = worker_->Start({.descriptor = &d, .length = 100, .into = memory});
  ASSERT_TRUE(DriveOp(*uncounted).ok());
  uncounted->Acknowledge();
  d.wants_done = true;
  {
    const auto a = View(d);
    const auto b = View(d);
  }
  EXPECT_TRUE(leases_.WaitUntil([&] { return leases_.done().size() == 2; }));
  auto op = worker_->Start({.descriptor = &d, .length = 100, .into = memory});
  ASSERT_TRUE(DriveOp(*op).ok());
  op->Acknowledge();
  EXPECT_TRUE(leases_.WaitUntil([&] { return leases_.done().size() == 3; }));
  EXPECT_THAT(leases_.done(), ElementsAre(lease_.ref, lease_.ref, lease_.ref));
}

TEST_F(LocalEngineTest, WhoseResultWasNotTakenDidNotRead) {
  StartGateway();
  wire::Descriptor d = Publish(100);
  d.wants_done = true;
  ASSERT_TRUE(View(d).ok());
  ASSERT_TRUE(leases_.WaitUntil([&] { return leases_.done().size() == 1; }));
  auto op = worker_->Start({.descriptor = &d, .length = 100});
  ASSERT_EQ(op->Step(), PullOp::Progress::kDone);
  op.reset();
  EXPECT_TRUE(gateway_->Retire(lease_.ref));  // the claim has gone
  EXPECT_THAT(leases_.done(), SizeIs(1));
}

TEST_F(LocalEngineTest, AnAbandonedCopyLetsGo) {
  StartGateway();
  ASSERT_TRUE(View(Publish(1)).ok());
  const wire::Descriptor d = Publish(9 << 20);
  std::vector<std::byte> memory(d.nbytes);
  auto op = worker_->Start({.descriptor = &d, .length = d.nbytes, .into = memory});
  ASSERT_EQ(op->Step(), PullOp::Progress::kMoved);
  op.reset();
  EXPECT_TRUE(gateway_->Retire(lease_.ref));
}

TEST_F(LocalEngineTest, DeadlinesEndPulls) {
  StartGateway();
  ASSERT_TRUE(View(Publish(1)).ok());
  const wire::Descriptor d = Publish(9 << 20);
  auto op = worker_->Start({.descriptor = &d, .length = d.nbytes, .deadline = RealClock().Now()});
  EXPECT_EQ(ReasonText(DriveOp(*op).status()), "timed_out");
  // In mid-copy.
  std::vector<std::byte> memory(d.nbytes);
  const Instant soon = SaturatingAdd(RealClock().Now(), std::chrono::milliseconds(200));
  op = worker_->Start({.descriptor = &d, .length = d.nbytes, .into = memory, .deadline = soon});
  ASSERT_EQ(op->Step(), PullOp::Progress::kMoved);
  ASSERT_TRUE(Eventually([&] { return RealClock().Now() >= soon; }));
  EXPECT_EQ(op->Step(), PullOp::Progress::kDone);
  EXPECT_EQ(ReasonText(op->TakeResult().status()), "timed_out");
  op.reset();
  EXPECT_TRUE(gateway_->Retire(lease_.ref));
}

TEST_F(LocalEngineTest, ViewsAreLimitedToAShareCopiesAreNot) {
  StartGateway({.max_claim_percent = 25});
  const wire::Descriptor large = Publish(leases_.arena().size / 4);
  const wire::Descriptor small = Publish(1);
  auto view = View(large);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(Reason(small), "claim_limit");
  EXPECT_TRUE(IsRetryable(View(small).status()));
  std::vector<std::byte> memory(1);
  auto op = worker_->Start({.descriptor = &small, .length = 1, .into = memory});
  EXPECT_TRUE(DriveOp(*op).ok());
  view = absl::CancelledError();
  EXPECT_EQ(Reason(small), "ok");
}

TEST_F(LocalEngineTest, ViewsOutliveBothEngines) {
  StartGateway();
  const auto view = View(Publish(100'000));
  worker_.reset();
  gateway_.reset();
  EXPECT_TRUE(Same(view->bytes, lease_));
}

TEST_F(LocalEngineTest, AViewOutlivesTheWorkersEngineAndStillCounts) {
  StartGateway();
  wire::Descriptor d = Publish(100);
  d.wants_done = true;
  auto view = View(d);
  worker_.reset();
  EXPECT_FALSE(gateway_->Retire(lease_.ref));
  view = absl::CancelledError();
  EXPECT_TRUE(leases_.WaitUntil([&] { return leases_.quiesced().size() == 1; }));
  EXPECT_THAT(leases_.done(), SizeIs(1));
  EXPECT_TRUE(Eventually([&] { return gateway_->workers() == 0; }));
}

TEST_F(LocalEngineTest, AllPullsShareOneConnection) {
  StartGateway();
  const wire::Descriptor d = Publish(100);
  std::vector<std::unique_ptr<PullOp>> ops;
  for (int i = 0; i < 32; ++i) ops.push_back(worker_->Start({.descriptor = &d, .length = 100}));
  for (const auto& landed : DriveOps(ops)) EXPECT_TRUE(landed.ok()) << landed.status();
  EXPECT_EQ(gateway_->workers(), 1u);
}

TEST_F(LocalEngineTest, AllThreadsShareOneConnection) {
  StartGateway();
  const wire::Descriptor d = Publish(100);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      const auto landed = View(d);
      EXPECT_TRUE(landed.ok()) << landed.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(gateway_->workers(), 1u);
}

TEST_F(LocalEngineTest, ARestartedGatewayIsFoundWithinThePull) {
  FakeLeaseSource leases({.instance = 2});
  const size_t mappings = MemfdMappings();
  StartGateway();
  auto old_view = View(Publish(100));
  const PublishedLease old_lease = lease_;
  ASSERT_TRUE(old_view.ok());
  gateway_.reset();

  auto gateway = StartGateway(leases, {.socket_path = path_});
  const PublishedLease lease = leases.Add(50);
  gateway->Publish(lease);
  const wire::Descriptor d = leases.DescriptorOf(lease, {gateway->way()});
  {
    const auto view = View(d);
    ASSERT_TRUE(view.ok()) << view.status();
    EXPECT_TRUE(std::ranges::equal(view->bytes, leases.BytesOf(lease)));
  }
  EXPECT_TRUE(Same(old_view->bytes, old_lease));
  // The old one's three mappings go with the last view of it.
  gateway.reset();
  EXPECT_TRUE(Eventually([&] { return MemfdMappings() == mappings + 3; }));
  old_view = absl::CancelledError();
  EXPECT_EQ(MemfdMappings(), mappings);
}

TEST_F(LocalEngineTest, AnotherInstanceIsNotAskedAgain) {
  StartGateway();
  wire::Descriptor d = Publish(100);
  d.instance[15] ^= 1;
  EXPECT_TRUE(worker_->CanTry(d).ok());
  EXPECT_EQ(Reason(d), "wrong_instance");
  EXPECT_EQ(ReasonText(worker_->CanTry(d)), "wrong_instance");
  auto op = worker_->Start({.descriptor = &d, .length = 100});
  EXPECT_EQ(op->Step(), PullOp::Progress::kDone);
  d.instance[15] ^= 1;
  EXPECT_EQ(Reason(d), "ok");
  EXPECT_EQ(gateway_->workers(), 1u);
}

TEST_F(LocalEngineTest, ADeadGatewayIsUnreachableAndForgotten) {
  StartGateway();
  const wire::Descriptor d = Publish(100);
  ASSERT_TRUE(View(d).ok());
  const size_t mappings = MemfdMappings();
  gateway_.reset();  // unmaps its table and this worker's board
  // Nobody pulls; the worker lets go of the arena, the table and the board all the same.
  EXPECT_TRUE(Eventually([&] { return MemfdMappings() == mappings - 2 - 3; }));
  EXPECT_EQ(Reason(d), "unreachable");
  EXPECT_EQ(ReasonText(worker_->CanTry(d)), "other_host");
}

TEST_F(LocalEngineTest, CanTryLooksAtTheDescriptorFirst) {
  StartGateway();
  const wire::Descriptor d = Publish(100);
  EXPECT_TRUE(worker_->CanTry(d).ok());
  wire::Descriptor none = d;
  none.ways.clear();
  EXPECT_EQ(ReasonText(worker_->CanTry(none)), "no_common_way");
  EXPECT_EQ(Reason(none), "no_common_way");
  auto elsewhere = CreateLocalPullEngine({.boot_id = wire::BootId{1, 2, 3}});
  EXPECT_EQ(ReasonText(elsewhere->CanTry(d)), "other_host");
  auto nowhere = CreateLocalPullEngine({.boot_id = wire::BootId{}});
  wire::Descriptor unknown = d;
  std::get<wire::LocalWay>(unknown.ways[0]).boot_id = {};
  EXPECT_EQ(ReasonText(nowhere->CanTry(unknown)), "other_host");
  wire::Descriptor missing = d;
  std::get<wire::LocalWay>(missing.ways[0]).socket_path = dir_ / "no.sock";
  const absl::Status status = worker_->CanTry(missing);
  EXPECT_EQ(ReasonText(status), "other_host");
  EXPECT_THAT(std::string(status.message()), HasSubstr("no.sock"));
}

TEST_F(LocalEngineTest, CanTryTouchesNoFileOfAConnectedGateway) {
  StartGateway();
  const wire::Descriptor d = Publish(100);
  ASSERT_TRUE(View(d).ok());
  ASSERT_EQ(::unlink(path_.c_str()), 0);
  EXPECT_TRUE(worker_->CanTry(d).ok());
  EXPECT_EQ(Reason(d), "ok");
}

TEST_F(LocalEngineTest, AnotherUidIsRefusedAndRemembered) {
  const size_t fds = OpenFds();
  StartGateway({.expected_uid = ::geteuid() + 1});
  const wire::Descriptor d = Publish(100);
  EXPECT_TRUE(worker_->CanTry(d).ok());
  EXPECT_EQ(Reason(d), "uid_mismatch");
  EXPECT_EQ(ReasonText(worker_->CanTry(d)), "uid_mismatch");
  EXPECT_EQ(gateway_->workers(), 0u);
  gateway_.reset();
  EXPECT_EQ(OpenFds(), fds);
}

TEST_F(LocalEngineTest, MoreWorkersThanPermittedAreToldSo) {
  StartGateway({.max_workers = 1});
  const wire::Descriptor d = Publish(100);
  auto second = CreateLocalPullEngine({});
  ASSERT_TRUE(View(d).ok());
  EXPECT_EQ(ReasonText(View(d, *second).status()), "busy");
  worker_.reset();
  ASSERT_TRUE(Eventually([&] { return gateway_->workers() == 0; }));
  second = CreateLocalPullEngine({});
  EXPECT_TRUE(View(d, *second).ok());
}

TEST_F(LocalEngineTest, SettingsOutsideTheirRange) {
  EXPECT_EQ(
      ReasonText(
          LocalExportEngine::Create({.socket_path = path_, .max_claim_percent = 101}).status()),
      "bad_option");
  EXPECT_EQ(ReasonText(LocalExportEngine::Create({.socket_path = "relative"}).status()),
            "bad_address");
  StartGateway();
  const absl::Status second = LocalExportEngine::Create({.socket_path = path_}).status();
  EXPECT_EQ(ReasonText(second), "address_in_use");
  EXPECT_THAT(std::string(second.message()), HasSubstr(path_));
}

TEST_F(LocalEngineTest, ConnectionsLeaveNothingBehind) {
  StartGateway();
  const wire::Descriptor d = Publish(100);
  const size_t fds = OpenFds(), mappings = MemfdMappings();
  for (int i = 0; i < 100; ++i) {
    auto engine = CreateLocalPullEngine({});
    const auto view = View(d, *engine);
    ASSERT_TRUE(view.ok()) << view.status();
  }
  EXPECT_TRUE(Eventually([&] { return gateway_->workers() == 0; }));
  EXPECT_TRUE(Eventually([&] { return OpenFds() == fds; })) << OpenFds() << " not " << fds;
  EXPECT_EQ(MemfdMappings(), mappings);
}

// Blocks the gateway's thread in Done until opened.
class SlowLeaseSource : public FakeLeaseSource {
 public:
  using FakeLeaseSource::FakeLeaseSource;
  void Done(const wire::LeaseRef& ref) override {
    {
      std::unique_lock lock(gate_mutex_);
      gate_.wait(lock, [&] { return open_; });
    }
    FakeLeaseSource::Done(ref);
  }
  void OpenGate() {
    std::lock_guard lock(gate_mutex_);
    open_ = true;
    gate_.notify_all();
  }

 private:
  std::mutex gate_mutex_;
  std::condition_variable gate_;
  bool open_ = false;
};

TEST_F(LocalEngineTest, NoReaderIsLostWhileTheGatewayIsSlow) {
  SlowLeaseSource leases({.max_leases = 4096, .instance = 3});
  auto gateway = StartGateway(leases, {.socket_path = path_, .max_claim_percent = 100});
  constexpr size_t kLeases = 2000;  // more messages than a socket holds
  std::vector<Landed> views;
  for (size_t i = 0; i < kLeases; ++i) {
    const PublishedLease lease = leases.Add(64);
    gateway->Publish(lease);
    wire::Descriptor d = leases.DescriptorOf(lease, {gateway->way()});
    d.wants_done = true;
    auto view = View(d);
    ASSERT_TRUE(view.ok()) << view.status();
    views.push_back(*std::move(view));
  }
  views.clear();  // does not block, though nobody reads
  leases.OpenGate();
  EXPECT_TRUE(leases.WaitUntil([&] { return leases.done().size() == kLeases; }));
}

}  // namespace
}  // namespace tensorferry::engine
