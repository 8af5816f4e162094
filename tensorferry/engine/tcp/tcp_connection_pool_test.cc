#include "tensorferry/engine/tcp/tcp_connection_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <string>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/tcp/tcp_testing.h"

namespace tensorferry::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr Instant kStart = Instant(std::chrono::hours(1));

TcpConnectionPool::Options Fast() {
  return {.idle_connections = 2,
          .connect_timeout = seconds(2),
          .backoff_min = milliseconds(100),
          .backoff_max = milliseconds(350)};
}

// Waits for connect() to end, with the pool's clock standing still.
absl::StatusOr<TcpConnection> Connect(TcpConnectionPool& pool, const SocketAddress& address,
                                      Instant now = kStart, bool fresh = false) {
  TcpConnectionPool::Dial dial;
  for (;;) {
    auto got = pool.Get(address, fresh, now, &dial);
    if (!got.ok()) return got.status();
    if (got->has_value()) return **std::move(got);
    pollfd wait = {.fd = dial.fd(), .events = POLLOUT, .revents = 0};
    if (::poll(&wait, 1, 30000) != 1) return absl::InternalError("connect never ends");
  }
}

std::optional<Reason> Try(TcpConnectionPool& pool, const SocketAddress& address, Instant now) {
  return ReasonOf(Connect(pool, address, now).status());
}

TEST(TcpConnectionPoolTest, KeepsIdleConnectionsUpToTheLimit) {
  Listener gateway;
  TcpConnectionPool pool(Fast());
  std::vector<TcpConnection> used;
  std::vector<RawConnection> accepted;
  for (int i = 0; i < 3; ++i) {
    used.push_back(*Connect(pool, gateway.address()));
    EXPECT_FALSE(used.back().cached());
    accepted.push_back(gateway.Accept());
  }
  EXPECT_FALSE(pool.Warm(gateway.address()));
  for (TcpConnection& c : used) pool.Put(std::move(c));
  EXPECT_TRUE(pool.Warm(gateway.address()));
  EXPECT_TRUE(accepted[2].ReadsEnd());  // the third was one too many

  EXPECT_TRUE(Connect(pool, gateway.address())->cached());
  EXPECT_EQ(pool.connects(), 3u);
}

TEST(TcpConnectionPoolTest, UsesTheLastIdleConnectionFirst) {
  Listener gateway;
  TcpConnectionPool pool(Fast());
  TcpConnection a = *Connect(pool, gateway.address());
  TcpConnection b = *Connect(pool, gateway.address());
  const int last = b.fd();
  pool.Put(std::move(a));
  pool.Put(std::move(b));
  EXPECT_EQ(Connect(pool, gateway.address())->fd(), last);
}

TEST(TcpConnectionPoolTest, FreshIsNotAnIdleOne) {
  Listener gateway;
  TcpConnectionPool pool(Fast());
  pool.Put(*Connect(pool, gateway.address()));
  EXPECT_FALSE(Connect(pool, gateway.address(), kStart, /*fresh=*/true)->cached());
  EXPECT_EQ(pool.connects(), 2u);
}

TEST(TcpConnectionPoolTest, DistrustDropsTheIdleConnections) {
  Listener gateway;
  TcpConnectionPool pool(Fast());
  pool.Put(*Connect(pool, gateway.address()));
  RawConnection accepted = gateway.Accept();
  pool.Distrust(gateway.address());
  EXPECT_TRUE(accepted.ReadsEnd());
  EXPECT_FALSE(Connect(pool, gateway.address())->cached());
}

TEST(TcpConnectionPoolTest, AFailureIsRememberedForAGrowingWhile) {
  std::vector<std::string> log;
  TcpConnectionPool::Options options = Fast();
  options.log = [&](LogLevel, std::string_view line) { log.emplace_back(line); };
  Listener gateway = Listener::Closed();
  TcpConnectionPool pool(options);
  Instant now = kStart;
  uint64_t connects = 0;
  for (const milliseconds backoff :
       {milliseconds(100), milliseconds(200), milliseconds(350), milliseconds(350)}) {
    EXPECT_EQ(Try(pool, gateway.address(), now), Reason::kUnreachable);
    EXPECT_EQ(pool.connects(), ++connects);
    EXPECT_THAT(log.back(), HasSubstr(StrCat("next try in ", backoff.count(), " ms")));

    now += backoff - milliseconds(1);
    const absl::Status early = Connect(pool, gateway.address(), now).status();
    EXPECT_EQ(ReasonOf(early), Reason::kUnreachable);
    EXPECT_THAT(std::string(early.message()), HasSubstr(gateway.address().ToString()));
    EXPECT_THAT(std::string(early.message()), HasSubstr("refused; not tried again for 1 ms"));
    EXPECT_EQ(pool.connects(), connects);
    now += milliseconds(1);
  }

  // A success ends it, and the next failure starts from the beginning.
  gateway.Listen();
  EXPECT_TRUE(Connect(pool, gateway.address(), now).ok());
  EXPECT_EQ(log.size(), 4u);
}

TEST(TcpConnectionPoolTest, EverybodyWaitsForOneConnectAndSharesItsFailure) {
  BlackHole gateway;
  TcpConnectionPool pool(Fast());
  std::array<TcpConnectionPool::Dial, 64> dials;
  for (auto& dial : dials) {
    auto got = pool.Get(gateway.address(), false, kStart, &dial);
    ASSERT_TRUE(got.ok() && !got->has_value()) << got.status();
    EXPECT_GE(dial.fd(), 0);
    EXPECT_EQ(dial.gives_up(), kStart + seconds(2));
  }
  EXPECT_EQ(pool.connects(), 1u);

  for (auto& dial : dials) {
    auto got = pool.Get(gateway.address(), false, kStart + seconds(2), &dial);
    EXPECT_EQ(ReasonOf(got.status()), Reason::kUnreachable) << got.status();
    EXPECT_EQ(dial.fd(), -1);
  }
  EXPECT_EQ(pool.connects(), 1u);
  // That was one failure, not 64.
  EXPECT_EQ(Try(pool, gateway.address(), kStart + seconds(2) + milliseconds(99)),
            Reason::kUnreachable);
  EXPECT_EQ(pool.connects(), 1u);
  TcpConnectionPool::Dial again;
  auto got = pool.Get(gateway.address(), false, kStart + seconds(2) + milliseconds(100), &again);
  EXPECT_TRUE(got.ok() && !got->has_value());
  EXPECT_EQ(pool.connects(), 2u);
}

TEST(TcpConnectionPoolTest, AWaiterDoesNotNeedTheOneThatBegan) {
  BlackHole gateway;
  TcpConnectionPool pool(Fast());
  TcpConnectionPool::Dial first, second, third;
  for (auto* dial : {&first, &second, &third}) {
    ASSERT_FALSE((*pool.Get(gateway.address(), false, kStart, dial)).has_value());
  }
  gateway.Open();
  pollfd wait = {.fd = second.fd(), .events = POLLOUT, .revents = 0};
  ASSERT_EQ(::poll(&wait, 1, 30000), 1);
  auto taken = pool.Get(gateway.address(), false, kStart, &second);
  ASSERT_TRUE(taken.ok() && taken->has_value());
  EXPECT_FALSE((*taken)->cached());

  // The others are told by the same socket, and then connect for themselves.
  wait.fd = third.fd();
  ASSERT_EQ(::poll(&wait, 1, 0), 1);
  auto own = pool.Get(gateway.address(), false, kStart, &third);
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(pool.connects(), 2u);
}

TEST(TcpConnectionPoolTest, ClosingIsSeenByTheGatewayThoughAWaiterSharesTheSocket) {
  TcpConnectionPool pool(Fast());
  BlackHole hole;
  TcpConnectionPool::Dial first, second;
  ASSERT_FALSE((*pool.Get(hole.address(), false, kStart, &first)).has_value());
  ASSERT_FALSE((*pool.Get(hole.address(), false, kStart, &second)).has_value());
  hole.Open();
  pollfd wait = {.fd = first.fd(), .events = POLLOUT, .revents = 0};
  ASSERT_EQ(::poll(&wait, 1, 30000), 1);
  auto taken = pool.Get(hole.address(), false, kStart, &first);
  ASSERT_TRUE(taken.ok() && taken->has_value());
  RawConnection accepted = hole.Accept();
  (*taken)->Close();
  EXPECT_TRUE(accepted.ReadsEnd());
  EXPECT_GE(second.fd(), 0);
}

TEST(TcpConnectionPoolTest, AConnectThatNobodyWaitedForIsUsedAsAnIdleConnection) {
  BlackHole gateway;
  TcpConnectionPool pool(Fast());
  int fd = -1;
  {
    TcpConnectionPool::Dial abandoned;
    ASSERT_FALSE((*pool.Get(gateway.address(), false, kStart, &abandoned)).has_value());
    fd = abandoned.fd();
  }
  gateway.Open();
  pollfd wait = {.fd = fd, .events = POLLOUT, .revents = 0};
  ASSERT_EQ(::poll(&wait, 1, 30000), 1);
  const absl::StatusOr<TcpConnection> found =
      Connect(pool, gateway.address(), kStart + std::chrono::hours(1));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE(found->cached());
  EXPECT_EQ(pool.connects(), 1u);
}

TEST(TcpConnectionPoolTest, AnAnsweringGatewayIsConnectedToSideBySide) {
  Listener gateway;
  TcpConnectionPool pool(Fast());
  EXPECT_TRUE(Connect(pool, gateway.address()).ok());
  std::array<TcpConnectionPool::Dial, 4> dials;
  for (auto& dial : dials) ASSERT_TRUE(pool.Get(gateway.address(), true, kStart, &dial).ok());
  EXPECT_EQ(pool.connects(), 5u);
}

TEST(TcpConnectionPoolTest, AnAddressWithoutARouteFailsLikeADeadOne) {
  TcpConnectionPool pool(Fast());
  // TCP to the broadcast address fails in connect() itself.
  const SocketAddress nowhere = *SocketAddress::Parse("255.255.255.255:9");
  EXPECT_EQ(Try(pool, nowhere, kStart), Reason::kUnreachable);
  EXPECT_EQ(Try(pool, nowhere, kStart), Reason::kUnreachable);
  EXPECT_EQ(pool.connects(), 1u);
}

TEST(TcpConnectionPoolTest, ForgetsGatewaysThatHaveGone) {
  TcpConnectionPool pool(Fast());
  Listener gateway;
  const SocketAddress old = gateway.address();
  TcpConnection connection = *Connect(pool, old);
  const int fd = connection.fd();
  pool.Put(std::move(connection));
  gateway.Accept().Close();
  pollfd wait = {.fd = fd, .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&wait, 1, 30000), 1);

  Listener another;
  EXPECT_TRUE(Connect(pool, another.address()).ok());
  EXPECT_FALSE(pool.Warm(old));
}

}  // namespace
}  // namespace tensorferry::engine
