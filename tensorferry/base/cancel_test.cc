#include "tensorferry/base/cancel.h"

#include <poll.h>

#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace tensorferry {
namespace {

bool Readable(const Cancellation& c, int timeout_ms = 0) {
  pollfd p = {.fd = c.fd(), .events = POLLIN, .revents = 0};
  return ::poll(&p, 1, timeout_ms) == 1 && (p.revents & POLLIN) != 0;
}

TEST(CancellationTest, DefaultOneNeverFires) {
  const Cancellation none;
  none.Cancel();
  EXPECT_FALSE(none.cancelled());
  EXPECT_EQ(none.fd(), -1);
}

TEST(CancellationTest, FiresForEveryCopyAndForEver) {
  const Cancellation stop = Cancellation::Create();
  const Cancellation copy = stop;
  EXPECT_FALSE(copy.cancelled());
  EXPECT_FALSE(Readable(copy));
  stop.Cancel();
  stop.Cancel();
  EXPECT_TRUE(copy.cancelled());
  EXPECT_TRUE(Readable(copy));
  EXPECT_TRUE(Readable(copy));
}

TEST(CancellationTest, WakesAWaiterOnAnotherThread) {
  const Cancellation stop = Cancellation::Create();
  bool woken = false;
  std::thread waiter([&] { woken = Readable(stop, /*timeout_ms=*/60000) && stop.cancelled(); });
  std::vector<std::thread> cancellers;
  for (int i = 0; i < 4; ++i) cancellers.emplace_back([stop] { stop.Cancel(); });
  for (std::thread& t : cancellers) t.join();
  waiter.join();
  EXPECT_TRUE(woken);
}

}  // namespace
}  // namespace tensorferry
