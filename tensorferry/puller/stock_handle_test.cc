// Handles of SMG's, with an engine that needs no NIXL: what the puller gives such an engine, and when it declines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tensorferry/base/error.h"
#include "tensorferry/puller/puller.h"
#include "tensorferry/wire/smg_descriptor.h"

namespace tensorferry {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kMargin = 8;

// Fills landing memory as a READ of a whole frame does: its stamps lie around `into`.
class FramedOp final : public engine::PullOp {
 public:
  FramedOp(const engine::PullRequest& request, absl::Status status)
      : request_(request), status_(std::move(status)) {}
  Progress Step() override {
    if (status_.ok()) {
      std::memset(request_.into.data() - kMargin, 0xff, request_.length + 2 * kMargin);
      std::memset(request_.into.data(), 0x17, request_.length);
    }
    return Progress::kDone;
  }
  void AddWaits(std::vector<pollfd>*, Instant*) const override {}
  absl::StatusOr<engine::Landed> TakeResult() override {
    if (!status_.ok()) return status_;
    return engine::Landed{.bytes = request_.into, .hold = nullptr};
  }
  void Acknowledge() override {}

 private:
  const engine::PullRequest request_;
  const absl::Status status_;
};

class FramedEngine final : public engine::PullEngine {
 public:
  std::string_view transport() const override { return "nixl"; }
  absl::Status CanTry(const wire::Descriptor& d) const override {
    if (d.ways.size() == 1 && std::holds_alternative<wire::SmgDescriptor>(d.ways[0])) {
      return absl::OkStatus();
    }
    return MakeError(Reason::kNoCommonWay, "none of SMG's");
  }
  bool borrows() const override { return false; }
  uint64_t margin_bytes() const override { return kMargin; }
  void UseLanding(std::span<std::byte> memory, const std::shared_ptr<const void>&) override {
    landing = memory;
  }
  void Decline(const wire::Descriptor& d) override { declined.push_back(d.key); }
  std::unique_ptr<engine::PullOp> Start(const engine::PullRequest& request) override {
    const std::byte* const end = request.into.data() + request.length + kMargin;
    EXPECT_GE(request.into.data() - kMargin, landing.data());
    EXPECT_LE(end, landing.data() + landing.size());
    EXPECT_NE(request.into_owner, nullptr);
    return std::make_unique<FramedOp>(request, answer);
  }

  std::span<std::byte> landing;
  std::vector<int64_t> declined;
  absl::Status answer;
};

class StockHandleTest : public testing::Test {
 protected:
  StockHandleTest() {
    PullerOptions options;
    options.landing_bytes = 64 << 10;
    options.prefault = false;
    options.engines.push_back(engine_);
    puller_ = *Puller::Create(std::move(options));
  }

  static Handle HandleOf(uint64_t nbytes, int64_t key = 7) {
    return {.transport = "nixl",
            .descriptor = wire::EncodeSmgDescriptor({.slot_addr = 0x7f0000001038,
                                                     .gen = 5,
                                                     .key = key,
                                                     .port = 18515,
                                                     .host = "127.0.0.1"}),
            .nbytes = nbytes};
  }
  static PullOptions Patient() { return {.timeout = seconds(60)}; }

  std::shared_ptr<FramedEngine> engine_ = std::make_shared<FramedEngine>();
  std::unique_ptr<Puller> puller_;
};

TEST_F(StockHandleTest, ThePayloadIsAlignedAndItsFrameIsInLandingMemory) {
  for (const uint64_t nbytes : {0, 1, 64, 1000, 65'000}) {
    const auto view = puller_->Pull(HandleOf(nbytes), Patient());
    ASSERT_TRUE(view.ok()) << view.status();
    EXPECT_EQ(view->bytes().size(), nbytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view->bytes().data()) % 64, 0U);
    EXPECT_TRUE(
        std::ranges::all_of(view->bytes(), [](std::byte b) { return b == std::byte{0x17}; }));
  }
  EXPECT_EQ(puller_->stats().landing_used_bytes, 0U);
  EXPECT_THAT(engine_->declined, IsEmpty());
}

TEST_F(StockHandleTest, AnEmptyTransportGoesByTheFirstBytes) {
  Handle handle = HandleOf(100);
  handle.transport.clear();
  EXPECT_TRUE(puller_->Pull(handle, Patient()).ok());
}

TEST_F(StockHandleTest, IntoTheCallersMemoryGoesByWayOfLandingMemory) {
  std::vector<std::byte> memory(1002, std::byte{0xaa});
  const auto done =
      puller_->PullInto(HandleOf(1000), std::span(memory).subspan(1, 1000), Patient());
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(done->transport, "nixl");
  EXPECT_EQ(memory.front(), std::byte{0xaa});
  EXPECT_EQ(memory.back(), std::byte{0xaa});
  EXPECT_EQ(std::ranges::count(memory, std::byte{0x17}), 1000);
  EXPECT_EQ(puller_->stats().landing_used_bytes, 0U);
}

// Fault 16: what fails before its READ frees its slot.
TEST_F(StockHandleTest, WhatIsNotEvenTriedIsDeclined) {
  PullOptions other_key = Patient();
  other_key.key = 8;
  EXPECT_EQ(ReasonOf(puller_->Pull(HandleOf(100), other_key).status()), Reason::kKeyMismatch);
  EXPECT_THAT(engine_->declined, ElementsAre(7)) << "by the descriptor's key";
  EXPECT_EQ(ReasonOf(puller_->Pull(HandleOf(1 << 20, 9), Patient()).status()), Reason::kTooLarge);
  EXPECT_THAT(engine_->declined, ElementsAre(7, 9));
  std::vector<std::byte> small(10);
  EXPECT_EQ(ReasonOf(puller_->PullInto(HandleOf(100, 11), small, Patient()).status()),
            Reason::kSizeMismatch);
  EXPECT_THAT(engine_->declined, ElementsAre(7, 9, 11));
  puller_->Decline(HandleOf(100, 12));
  EXPECT_THAT(engine_->declined, ElementsAre(7, 9, 11, 12));
}

TEST_F(StockHandleTest, StarvationOfLandingMemoryIsDeclined) {
  const auto kept = puller_->Pull(HandleOf(60'000, 1), Patient());
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(ReasonOf(puller_->Pull(HandleOf(60'000, 2), {.timeout = milliseconds(1)}).status()),
            Reason::kLandingFull);
  EXPECT_THAT(engine_->declined, ElementsAre(2));
}

TEST_F(StockHandleTest, AnOpThatFailsTellsItsGatewayByItself) {
  engine_->answer = MakeError(Reason::kBadGeneration, "torn");
  EXPECT_EQ(ReasonOf(puller_->Pull(HandleOf(100), Patient()).status()), Reason::kBadGeneration);
  EXPECT_THAT(engine_->declined, IsEmpty());
}

TEST_F(StockHandleTest, WhatIsNoDescriptorOfSmgsIsRefusedByName) {
  Handle handle = HandleOf(100);
  handle.descriptor = "SMGRDMA2" + handle.descriptor.substr(8);
  EXPECT_EQ(ReasonOf(puller_->Pull(handle, Patient()).status()), Reason::kLegacyNeedsKey);
  EXPECT_THAT(engine_->declined, IsEmpty());
  const auto without = Puller::Create({.landing_bytes = 0});
  const auto status = (*without)->Pull(HandleOf(100), Patient()).status();
  EXPECT_EQ(ReasonOf(status), Reason::kNoCommonWay);
  EXPECT_THAT(std::string(status.message()), HasSubstr("offers nixl"));
}

}  // namespace
}  // namespace tensorferry
