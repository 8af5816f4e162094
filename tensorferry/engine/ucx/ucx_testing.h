// For tests that need the module of engine/ucx: over UCX's tcp, on the loopback interface.
//
//   const auto ucx = UcxForTest();
//   if (!ucx) GTEST_SKIP() << kNoUcx;
//   UcxGateway gateway(*ucx, {.instance = 1});
//
//   TEST_P(UcxPullTest, Arrives) {                  // asked for, and fetched by itself
//     UcxGateway gateway(*ucx_, {}, Options());
//     ExpectArrives(gateway, gateway.leases.Add(1000));
//   }
//
// Thread-safety: none.
#ifndef TENSORFERRY_ENGINE_UCX_UCX_TESTING_H_
#define TENSORFERRY_ENGINE_UCX_UCX_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tensorferry/engine/engine_testing.h"
#include "tensorferry/engine/ucx/ucx_module.h"

namespace tensorferry::engine {

inline constexpr char kNoUcx[] =
    "no UCX when this was built, so that engine/ucx is NOT tested: install libucx-dev and run "
    "cmake "
    "again";

// Of this build.
std::string UcxModulePathForTest();
// Null where there is none; aborts when it is there and does not load.
std::shared_ptr<const UcxModule> UcxForTest();

// Leases, and the engine that serves them.
struct UcxGateway {
  UcxGateway(const UcxModule& ucx, const FakeLeaseSource::Options& source,
             const UcxExportOptions& options);
  UcxGateway(const UcxModule& ucx, const FakeLeaseSource::Options& source);

  wire::Descriptor DescriptorOf(const PublishedLease& lease) const {
    return leases.DescriptorOf(lease, {engine->way()});
  }
  bool Unpinned() const {
    return leases.WaitUntil([this] { return leases.pins() == 0; });
  }
  // That were begun, one way or the other.
  uint64_t Reads() const { return leases.opens() + leases.locates(); }

  FakeLeaseSource leases;
  std::unique_ptr<UcxExportEngine> engine;
};

// One pull that can be left lying in the middle.
struct UcxTransfer {
  // Memory for one, to be started when all of several have theirs.
  explicit UcxTransfer(const wire::Descriptor& d) : descriptor(d), into(d.nbytes) {}
  UcxTransfer(PullEngine& engine, const wire::Descriptor& d, Instant deadline = kNever)
      : UcxTransfer(d) {
    Start(engine, deadline);
  }
  void Start(PullEngine& engine, Instant deadline = kNever);
  // Until the first bytes are there. False if by then it is over: another thread carries it on.
  bool Begin();

  wire::Descriptor descriptor;
  std::vector<std::byte> into;
  std::unique_ptr<PullOp> op;
};

// A pull that is in the middle: as often as it takes to catch one there. Null if none was.
std::unique_ptr<UcxTransfer> InMidTransfer(PullEngine& engine, const wire::Descriptor& d,
                                           Duration limit = std::chrono::hours(1));

// A puller of this process.
class UcxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ucx_ = UcxForTest();
    if (!ucx_) GTEST_SKIP() << kNoUcx;
    UsePuller({});
  }

  virtual UcxGet get() const { return UcxGet::kOff; }

  void UsePuller(UcxPullOptions options) {
    options.ucx.get = get();
    auto puller = ucx_->CreatePull(options);
    ASSERT_TRUE(puller.ok()) << puller.status();
    puller_ = *std::move(puller);
  }
  // Of a gateway: at any port where it names none.
  UcxExportOptions Options(UcxExportOptions options = {}) const {
    options.ucx.get = get();
    if (options.listen == SocketAddress()) options.listen = *SocketAddress::Parse("127.0.0.1:0");
    return options;
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

// The same with both ways to pull: asked for, and fetched by itself. Here is no card, so that UCX
// emulates it, and may end the gateway when an endpoint breaks while its reader waits for a GET: what
// makes endpoints break in mid-transfer is tested of UcxTest.
class UcxPullTest : public UcxTest, public ::testing::WithParamInterface<UcxGet> {
 protected:
  UcxGet get() const override { return GetParam(); }
};

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_UCX_UCX_TESTING_H_
