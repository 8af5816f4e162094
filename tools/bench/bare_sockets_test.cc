#include "tools/bench/bare_sockets.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tensorferry/base/error.h"
#include "tools/bench/pattern.h"

namespace tensorferry::tools::bench {
namespace {

TEST(BareSockets, EveryRangeArrivesOverAnyNumberOfConnections) {
  std::vector<std::byte> memory(5 << 20), into;
  FillPattern(3, memory);
  for (const bool spin : {false, true}) {
    const auto server = BareSocketServer::Create("127.0.0.1", memory, spin);
    ASSERT_TRUE(server.ok()) << server.status();
    for (const size_t connections : {1, 2, 3}) {
      const auto client = BareSocketClient::Connect((*server)->address(), connections, spin);
      ASSERT_TRUE(client.ok()) << client.status();
      for (const auto& [offset, size] :
           {std::pair{0, 1}, {7, 2}, {1000, 1 << 20}, {0, 5 << 20}, {(5 << 20) - 9, 9}}) {
        into.assign(static_cast<size_t>(size), std::byte{0});
        ASSERT_TRUE((*client)->Pull(static_cast<uint64_t>(offset), into).ok());
        EXPECT_EQ(std::memcmp(into.data(), memory.data() + offset, into.size()), 0) << size;
      }
    }
  }
}

TEST(BareSockets, ARangeOutsideEndsTheConnectionAlone) {
  std::vector<std::byte> memory(1000), into(10);
  const auto server = BareSocketServer::Create("127.0.0.1", memory, true);
  ASSERT_TRUE(server.ok()) << server.status();
  for (const uint64_t offset : {uint64_t{991}, uint64_t{1001}, UINT64_MAX}) {
    const auto client = BareSocketClient::Connect((*server)->address(), 1, true);
    ASSERT_TRUE(client.ok()) << client.status();
    EXPECT_EQ(ReasonOf((*client)->Pull(offset, into)), Reason::kPeerClosed);
  }
  const auto client = BareSocketClient::Connect((*server)->address(), 1, true);
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_TRUE((*client)->Pull(990, into).ok());
}

}  // namespace
}  // namespace tensorferry::tools::bench
