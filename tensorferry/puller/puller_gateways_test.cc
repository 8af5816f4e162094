// A puller and the gateways that it pulls from: several, silent ones, restarted ones, and what they hear of readers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include "tensorferry/base/error.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/base/net.h"
#include "tensorferry/exporter/exporter_testing.h"
#include "tensorferry/puller/puller_testing.h"
#include "tensorferry/wire/descriptor.h"

namespace tensorferry {
namespace {

using std::chrono::seconds;

TEST(PullerGatewaysTest, SeveralGatewaysAtOnce) {
  const auto puller = MakePuller();
  std::vector<std::unique_ptr<ExporterForTest>> gateways;
  std::vector<Lease> leases;
  for (int i = 0; i < 5; ++i) {
    gateways.push_back(std::make_unique<ExporterForTest>());
    leases.push_back((*gateways.back())->Export(Pattern(10'000, i), {.key = 1}));
  }
  for (const Lease::Ways ways : {kShm, kRemote}) {
    for (int i = 0; i < 5; ++i) {
      const auto view = puller->Pull(HandleOf(leases[i], ways), PatientOptions());
      ASSERT_TRUE(view.ok()) << view.status();
      EXPECT_TRUE(std::ranges::equal(view->bytes(), Pattern(10'000, i)));
    }
  }
}

// Takes connections, as its kernel does, and never says a word.
class SilentGateway {
 public:
  SilentGateway() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_storage storage = {};
    socklen_t length = SocketAddress::ParseHost("127.0.0.1", 0)->ToSockaddr(&storage);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&storage), length), 0);
    EXPECT_EQ(::listen(listener_.get(), 16), 0);
    EXPECT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&storage), &length), 0);
    address_ = *SocketAddress::FromSockaddr(storage);
  }
  // The same lease, were this its gateway.
  Handle Impersonate(Handle handle) const {
    wire::Descriptor d = *wire::DecodeDescriptor(std::as_bytes(std::span(handle.descriptor)));
    d.ways = {wire::NetWay{wire::NetWay::Kind::kTcp, {address_}}};
    handle.descriptor = *wire::EncodeDescriptor(d);
    return handle;
  }

 private:
  UniqueFd listener_;
  SocketAddress address_;
};

TEST(PullerGatewaysTest, AHealthyGatewayDoesNotWaitForASilentOne) {
  ExporterForTest gateway;
  const SilentGateway silent;
  const auto puller = MakePuller([](PullerOptions* o) { o->async_threads = 1; });
  const Lease lease = gateway->Export(Pattern(10'000, 1), {});
  const Handle handle = HandleOf(lease, kRemote);
  const Cancellation cancel = Cancellation::Create();
  std::atomic<int> ended = 0;
  std::promise<absl::Status> last;
  for (int i = 0; i < 4; ++i) {
    puller->PullAsync(silent.Impersonate(handle), {.timeout = seconds(600), .cancel = cancel},
                      [&](absl::StatusOr<View> view) {
                        if (++ended == 4) last.set_value(view.status());
                      });
  }
  for (int i = 0; i < 20; ++i) {
    std::promise<bool> done;
    puller->PullAsync(handle, PatientOptions(),
                      [&](absl::StatusOr<View> view) { done.set_value(view.ok()); });
    EXPECT_TRUE(done.get_future().get());
    EXPECT_TRUE(puller->Pull(handle, PatientOptions()).ok());
  }
  EXPECT_EQ(ended, 0);  // all the while they wait
  cancel.Cancel();
  EXPECT_EQ(ReasonOf(last.get_future().get()), Reason::kCancelled);
}

TEST(PullerGatewaysTest, ARestartedGatewayIsReachedWithinTheSamePull) {
  ExporterForTest gateway;
  const auto puller = MakePuller();
  for (int i = 0; i < 20; ++i) {
    Handle old_shm, old_remote;
    {
      const Lease lease = gateway->Export(Pattern(10'000, i), {.key = 1});
      old_shm = HandleOf(lease, kShm);
      old_remote = HandleOf(lease, kRemote);
      for (const Handle& handle : {old_shm, old_remote}) {
        const auto view = puller->Pull(handle, PatientOptions());
        ASSERT_TRUE(view.ok()) << i << ": " << view.status();
        EXPECT_TRUE(std::ranges::equal(view->bytes(), Pattern(10'000, i)));
      }
    }
    gateway.Restart();
    // Its leases are gone with it, and say so; whoever has not yet noticed that its mapping is an
    // old one reads there that they have ended.
    EXPECT_THAT(ReasonOf(puller->Pull(old_shm, PatientOptions()).status()),
                ::testing::AnyOf(Reason::kWrongInstance, Reason::kLeaseEnded));
    EXPECT_EQ(ReasonOf(puller->Pull(old_remote, PatientOptions()).status()),
              Reason::kWrongInstance);
  }
}

TEST(PullerGatewaysTest, ADeadGatewayIsAnErrorOnBothWays) {
  const auto puller = MakePuller();
  auto gateway = std::make_unique<ExporterForTest>();
  const Lease lease = (*gateway)->Export(Pattern(100, 1), {});
  const Handle shm = HandleOf(lease, kShm);
  const Handle remote = HandleOf(lease, kRemote);
  gateway.reset();
  EXPECT_FALSE(puller->Pull(shm, PatientOptions()).ok());
  const absl::Status status = puller->Pull(remote, PatientOptions()).status();
  EXPECT_EQ(ReasonOf(status), Reason::kUnreachable);
  EXPECT_TRUE(IsRetryable(status));
}

TEST(PullerGatewaysTest, CountedReadersEndALeaseAndAreCountedOnceEach) {
  std::promise<LeaseEvent> ended;
  ExporterForTest gateway(
      [&](ExporterOptions* o) { o->on_event = [&](const LeaseEvent& e) { ended.set_value(e); }; });
  const uint64_t free_bytes = gateway->stats().free_bytes;
  const auto pattern = Pattern(100'000, 1);
  Lease lease = gateway->Export(pattern, {.key = 9, .readers = 8});
  const Handle handles[] = {HandleOf(lease, kShm), HandleOf(lease, kRemote)};
  std::move(lease).Detach();
  std::atomic<int> good = 0;
  std::vector<std::thread> readers;
  for (int i = 0; i < 8; ++i) {
    readers.emplace_back([&, i] {
      // A worker of its own, as eight processes would be.
      const auto puller = MakePuller();
      const auto view = puller->Pull(handles[i % 2], PatientOptions());
      good += view.ok() && std::ranges::equal(view->bytes(), pattern);
    });
  }
  for (std::thread& t : readers) t.join();
  EXPECT_EQ(good, 8);
  const LeaseEvent event = ended.get_future().get();
  EXPECT_EQ(event.kind, LeaseEvent::Kind::kReleased);
  EXPECT_EQ(event.key, 9);
  const auto puller = MakePuller();
  EXPECT_EQ(ReasonOf(puller->Pull(handles[0], PatientOptions()).status()), Reason::kLeaseEnded);
  EXPECT_EQ(ReasonOf(puller->Pull(handles[1], PatientOptions()).status()), Reason::kLeaseEnded);
  EXPECT_EQ(gateway->stats().free_bytes, free_bytes);
}

TEST(PullerGatewaysTest, ADeadReaderDoesNotCount) {
  ExporterForTest gateway;
  Lease lease = gateway->Export(Pattern(100, 1), {.readers = 1});
  const auto failing =
      FaultyPuller("tcp", [](const engine::PullRequest&) { return Failing(Reason::kPeerClosed); });
  EXPECT_FALSE(failing->Pull(HandleOf(lease, kRemote), PatientOptions()).ok());
  EXPECT_EQ(gateway->stats().published, 1);
  EXPECT_TRUE(MakePuller()->Pull(HandleOf(lease, kRemote), PatientOptions()).ok());
}

}  // namespace
}  // namespace tensorferry
