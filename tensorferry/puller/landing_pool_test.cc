#include "tensorferry/puller/landing_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "tensorferry/base/error.h"

namespace tensorferry {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<LandingPool> Pool(uint64_t bytes) {
  auto pool = LandingPool::Create({.bytes = bytes, .prefault = false});
  EXPECT_TRUE(pool.ok()) << pool.status();
  return *pool;
}

bool Readable(int fd) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, 0) == 1;
}

TEST(LandingPoolTest, GrantsAtOnceWhileThereIsRoom) {
  const auto pool = Pool(8192);
  auto ticket = *pool->Request(100);
  ASSERT_TRUE(ticket->granted());
  EXPECT_EQ(ticket->fd(), -1);
  const auto block = ticket->Take();
  EXPECT_EQ(block->bytes().size(), 100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block->bytes().data()) % 64, 0);
  std::memset(block->bytes().data(), 1, 100);
}

TEST(LandingPoolTest, WaitersAreServedInOrderAndNobodyOvertakes) {
  const auto pool = Pool(8192);
  auto all = (*pool->Request(8192))->Take();
  auto large = *pool->Request(8000);
  auto small = *pool->Request(64);
  EXPECT_FALSE(large->granted());
  EXPECT_FALSE(small->granted());
  EXPECT_EQ(pool->waiting(), 2);
  all.reset();
  EXPECT_TRUE(large->granted());
  EXPECT_TRUE(Readable(large->fd()));
  EXPECT_TRUE(small->granted());
  // There is room for this one, but not before those who came first.
  auto blocked = *pool->Request(8192);
  auto behind = *pool->Request(64);
  EXPECT_FALSE(behind->granted());
  EXPECT_FALSE(Readable(behind->fd()));
  // Leaving the queue lets the next one through.
  blocked.reset();
  EXPECT_TRUE(behind->granted());
}

TEST(LandingPoolTest, AGrantThatIsNotTakenGoesBack) {
  const auto pool = Pool(4096);
  {
    auto all = (*pool->Request(4096))->Take();
    auto waiter = *pool->Request(4096);
    all.reset();
    EXPECT_TRUE(waiter->granted());
    EXPECT_EQ(pool->used_bytes(), 4096);
  }
  EXPECT_EQ(pool->used_bytes(), 0);
  EXPECT_EQ(pool->waiting(), 0);
}

TEST(LandingPoolTest, WhatCanNeverFitIsRefusedAtOnce) {
  const auto pool = Pool(4096);
  const auto ticket = pool->Request(4097);
  EXPECT_EQ(ReasonOf(ticket.status()), Reason::kTooLarge);
  EXPECT_THAT(ticket.status().message(), HasSubstr("landing_bytes"));
  EXPECT_EQ(ReasonOf(Pool(0)->Request(1).status()), Reason::kTooLarge);
}

TEST(LandingPoolTest, BlocksOutliveThePool) {
  auto pool = Pool(4096);
  const auto block = (*pool->Request(4096))->Take();
  pool.reset();
  std::memset(block->bytes().data(), 1, 4096);
}

TEST(LandingPoolTest, ManyThreadsNeverShareAByte) {
  const auto pool = Pool(64 << 10);
  std::atomic<int> torn = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      std::minstd_rand random(static_cast<unsigned>(t));
      for (int i = 0; i < 300; ++i) {
        auto ticket = *pool->Request(1 + random() % (40 << 10));
        if (i % 7 == 0) continue;  // gives up while waiting
        while (!ticket->granted()) {
          pollfd p{ticket->fd(), POLLIN, 0};
          ::poll(&p, 1, -1);
        }
        const auto block = ticket->Take();
        const auto mark = static_cast<std::byte>(t + 1);
        std::fill(block->bytes().begin(), block->bytes().end(), mark);
        for (const std::byte b : block->bytes()) torn += b != mark;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(pool->used_bytes(), 0);
}

}  // namespace
}  // namespace tensorferry
