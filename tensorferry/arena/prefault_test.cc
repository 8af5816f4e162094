#include "tensorferry/arena/prefault.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

namespace tensorferry::arena {
namespace {

// Address space that nothing touches.
class PrefaultTest : public testing::Test {
 protected:
  PrefaultTest()
      : memory_(static_cast<std::byte*>(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                               MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
                kBytes) {}
  ~PrefaultTest() override { ::munmap(memory_.data(), memory_.size()); }

  size_t ResidentPages() const {
    std::vector<unsigned char> pages(kBytes / page_);
    EXPECT_EQ(::mincore(memory_.data(), kBytes, pages.data()), 0);
    size_t resident = 0;
    for (const unsigned char page : pages) resident += page & 1;
    return resident;
  }

  static constexpr size_t kBytes = 4 * kPrefaultPiece + 8192;
  const size_t page_ = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const std::span<std::byte> memory_;
};

TEST_F(PrefaultTest, PopulatesEveryPageByKernel) {
  const int error = Prefault(memory_, {}, PopulateByKernel);
  if (error == EINVAL) GTEST_SKIP() << "the kernel is older than 5.14";
  EXPECT_EQ(error, 0);
  EXPECT_EQ(ResidentPages(), kBytes / page_);
}

TEST_F(PrefaultTest, PopulatesEveryPageByTouch) {
  EXPECT_EQ(ResidentPages(), 0u);
  EXPECT_EQ(Prefault(memory_, {}, PopulateByTouch), 0);
  EXPECT_EQ(ResidentPages(), kBytes / page_);
}

TEST_F(PrefaultTest, TouchingLosesNoWrite) {
  std::atomic<int> touches = 0;
  std::jthread toucher([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      PopulateByTouch(memory_.first(page_));
      ++touches;
    }
  });
  std::atomic_ref<std::byte> byte(memory_[0]);
  int lost = 0;
  for (int i = 0; touches < 100'000; ++i) {
    const auto value = static_cast<std::byte>(i);
    byte.store(value);
    lost += byte.load() != value;
  }
  EXPECT_EQ(lost, 0);
}

TEST_F(PrefaultTest, GoesPieceByPiece) {
  std::vector<std::span<std::byte>> pieces;
  EXPECT_EQ(Prefault(memory_, {},
                     [&](std::span<std::byte> piece) {
                       pieces.push_back(piece);
                       return 0;
                     }),
            0);
  ASSERT_EQ(pieces.size(), 5u);
  const std::byte* next = memory_.data();
  for (const std::span<std::byte> piece : pieces) {
    EXPECT_EQ(piece.data(), next);
    EXPECT_LE(piece.size(), kPrefaultPiece);
    next += piece.size();
  }
  EXPECT_EQ(next, memory_.data() + kBytes);
}

TEST_F(PrefaultTest, StopsAfterThePieceAtHand) {
  std::stop_source stop;
  int pieces = 0;
  EXPECT_EQ(Prefault(memory_, stop.get_token(),
                     [&](std::span<std::byte>) {
                       if (++pieces == 2) stop.request_stop();
                       return 0;
                     }),
            ECANCELED);
  EXPECT_EQ(pieces, 2);
}

TEST_F(PrefaultTest, EndsWithTheFirstError) {
  int pieces = 0;
  EXPECT_EQ(Prefault(memory_, {},
                     [&](std::span<std::byte>) {
                       ++pieces;
                       return ENOMEM;
                     }),
            ENOMEM);
  EXPECT_EQ(pieces, 1);
}

TEST_F(PrefaultTest, ReportsWhatTheKernelRefuses) {
  ASSERT_EQ(::munmap(memory_.data() + kPrefaultPiece, page_), 0);
  const int error = Prefault(memory_, {}, PopulateByKernel);
  if (error == EINVAL) GTEST_SKIP() << "the kernel is older than 5.14";
  EXPECT_EQ(error, ENOMEM);
}

}  // namespace
}  // namespace tensorferry::arena
