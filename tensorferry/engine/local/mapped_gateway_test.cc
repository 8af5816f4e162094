#include "tensorferry/engine/local/mapped_gateway.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensorferry/base/error.h"
#include "tensorferry/engine/local/local_testing.h"
#include "tensorferry/wire/local_messages.h"

namespace tensorferry::engine {
namespace {

using ::testing::HasSubstr;
using Use = MappedGateway::Use;

constexpr uint64_t kArena = 1 << 16;
constexpr uint64_t kEntries = 64;

// A gateway that says and does whatever the test wants.
class MappedGatewayTest : public ::testing::Test {
 protected:
  MappedGatewayTest()
      : arena_(MakeMemfd(kArena)),
        table_(MakeMemfd(kEntries * sizeof(TableEntry))),
        board_(MakeMemfd(kEntries * sizeof(ClaimWord))) {
    entries_ = static_cast<TableEntry*>(MapAll(table_, kEntries * sizeof(TableEntry)));
    words_ = static_cast<ClaimWord*>(MapAll(board_, kEntries * sizeof(ClaimWord)));
    welcome_ = {.instance = {1},
                .arena_bytes = kArena,
                .table_entries = kEntries,
                .max_claim_bytes = kArena / 4};
  }
  ~MappedGatewayTest() override {
    ::munmap(entries_, kEntries * sizeof(TableEntry));
    ::munmap(words_, kEntries * sizeof(ClaimWord));
  }

  static void* MapAll(const UniqueFd& fd, size_t bytes) {
    return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  }
  std::vector<UniqueFd> Fds() {
    std::vector<UniqueFd> fds;
    for (const UniqueFd* fd : {&arena_, &table_, &board_}) fds.emplace_back(::dup(fd->get()));
    return fds;
  }
  absl::StatusOr<std::shared_ptr<MappedGateway>> Map(std::vector<UniqueFd> fds) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) abort();
    peer_.Reset(ends[0]);
    return MappedGateway::Map("/some/where.sock", UniqueFd(ends[1]), welcome_, std::move(fds));
  }
  std::shared_ptr<MappedGateway> Map() { return *Map(Fds()); }

  wire::Descriptor Publish(uint64_t id, uint64_t generation, uint64_t at, uint64_t nbytes) {
    entries_[id].payload_offset = at;
    entries_[id].nbytes = nbytes;
    entries_[id].SetToken({9});
    entries_[id].generation = generation;
    wire::Descriptor d;
    d.lease = {.id = id, .generation = generation, .token = {9}};
    d.nbytes = nbytes;
    return d;
  }
  // The next message, or none.
  std::optional<wire::LeaseRef> Heard() {
    std::array<std::byte, 128> buffer;
    const ssize_t n = ::recv(peer_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n <= 0) return std::nullopt;
    return wire::DecodeLocalRelease(std::span(buffer).first(static_cast<size_t>(n)))->lease;
  }

  UniqueFd arena_, table_, board_, peer_;
  TableEntry* entries_ = nullptr;
  ClaimWord* words_ = nullptr;
  wire::LocalWelcome welcome_;
};

TEST_F(MappedGatewayTest, AClaimIsAWordOnTheBoardWhileItLives) {
  auto gateway = Map();
  const wire::Descriptor d = Publish(3, 77, 128, 100);
  {
    auto claim = gateway->Take(d, 10, 20, Use::kView);
    ASSERT_TRUE(claim.ok()) << claim.status();
    EXPECT_EQ(claim->bytes().size(), 20u);
    EXPECT_EQ(words_[3].load(), 77u);
    auto* arena = static_cast<std::byte*>(MapAll(arena_, kArena));
    arena[128 + 10] = std::byte{42};
    EXPECT_EQ(claim->bytes()[0], std::byte{42});
    ::munmap(arena, kArena);
  }
  EXPECT_EQ(words_[3].load(), 0u);
  EXPECT_EQ(Heard(), std::nullopt);  // the lease is still readable: nobody waits for a message
}

TEST_F(MappedGatewayTest, ClaimsOnOneLeaseShareItsWord) {
  auto gateway = Map();
  const wire::Descriptor d = Publish(3, 77, 0, 100);
  std::optional<Claim> a = *gateway->Take(d, 0, 100, Use::kView);
  std::optional<Claim> b = *gateway->Take(d, 0, 100, Use::kCopy);
  std::optional<Claim> c = std::move(a);
  a.reset();
  EXPECT_EQ(words_[3].load(), 77u);
  c.reset();
  EXPECT_EQ(words_[3].load(), 77u);
  b.reset();
  EXPECT_EQ(words_[3].load(), 0u);
}

TEST_F(MappedGatewayTest, TellsOfAReleaseThatIsWaitedForOrCounts) {
  auto gateway = Map();
  const wire::Descriptor d = Publish(3, 77, 0, 100);
  {
    Claim counted = *gateway->Take(d, 0, 100, Use::kView);
    counted.SetDone();
  }
  EXPECT_EQ(Heard(), d.lease);
  {
    Claim first = *gateway->Take(d, 0, 100, Use::kView);
    {
      Claim second = *gateway->Take(d, 0, 100, Use::kView);
      entries_[3].generation = 0;  // retired
    }
    EXPECT_EQ(Heard(), std::nullopt);
  }
  EXPECT_EQ(Heard(), d.lease);
  EXPECT_EQ(Heard(), std::nullopt);
}

TEST_F(MappedGatewayTest, RefusesWhatIsNotTheLease) {
  auto gateway = Map();
  const wire::Descriptor good = Publish(3, 77, 0, 100);
  const auto reason = [&](const wire::Descriptor& d, uint64_t offset = 0, uint64_t length = 1) {
    const std::string text = ReasonText(gateway->Take(d, offset, length, Use::kCopy).status());
    for (uint64_t i = 0; i < kEntries; ++i) EXPECT_EQ(words_[i].load(), 0u) << i;
    return text;
  };
  EXPECT_EQ(reason(good), "ok");
  wire::Descriptor d = good;
  d.lease.generation = 76;
  EXPECT_EQ(reason(d), "lease_ended");
  d.lease.generation = 0;
  EXPECT_EQ(reason(d), "lease_ended");
  d = good;
  d.lease.id = 4;  // never published
  EXPECT_EQ(reason(d), "lease_ended");
  d.lease.generation = 0;
  EXPECT_EQ(reason(d), "lease_ended");
  for (uint64_t id : {kEntries, kEntries * 8, std::numeric_limits<uint64_t>::max()}) {
    d = good;
    d.lease.id = id;
    EXPECT_EQ(reason(d), "lease_ended");
  }
  d = good;
  d.lease.token[15] ^= 1;
  EXPECT_EQ(reason(d), "bad_token");
  EXPECT_EQ(reason(good, 0, 101), "out_of_range");
  EXPECT_EQ(reason(good, 100, 1), "out_of_range");
  EXPECT_EQ(reason(good, 100, 0), "ok");
  EXPECT_EQ(reason(good, std::numeric_limits<uint64_t>::max(), 2), "out_of_range");
  EXPECT_EQ(reason(good, 2, std::numeric_limits<uint64_t>::max()), "out_of_range");
}

TEST_F(MappedGatewayTest, AnOlderDescriptorDoesNotDisturbAHeldClaim) {
  auto gateway = Map();
  wire::Descriptor old = Publish(3, 76, 0, 100);
  const wire::Descriptor d = Publish(3, 77, 0, 100);
  Claim claim = *gateway->Take(d, 0, 100, Use::kView);
  EXPECT_EQ(ReasonText(gateway->Take(old, 0, 100, Use::kView).status()), "lease_ended");
  EXPECT_EQ(words_[3].load(), 77u);
  entries_[3].generation = 0;
  // Retired: no new reader, not even one that would share the claim.
  EXPECT_EQ(ReasonText(gateway->Take(d, 0, 100, Use::kView).status()), "lease_ended");
  EXPECT_EQ(words_[3].load(), 77u);
}

TEST_F(MappedGatewayTest, ALyingTableIsAnErrorNotACrash) {
  auto gateway = Map();
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  for (const auto& [at, nbytes] : std::vector<std::pair<uint64_t, uint64_t>>{
           {kArena, 1}, {kArena - 1, 2}, {kMax, 1}, {kMax - 1, 100}, {0, kArena + 1}, {1, kMax}}) {
    const wire::Descriptor d = Publish(3, 77, at, nbytes);
    EXPECT_EQ(ReasonText(gateway->Take(d, 0, nbytes, Use::kCopy).status()), "protocol_error")
        << at << " " << nbytes;
  }
  EXPECT_TRUE(gateway->Take(Publish(3, 77, kArena, 0), 0, 0, Use::kView).ok());
}

TEST_F(MappedGatewayTest, ADescriptorMayNameLessThanTheLeaseAndNeverMore) {
  auto gateway = Map();
  wire::Descriptor d = Publish(3, 77, 0, 100);
  d.nbytes = 99;
  EXPECT_EQ(gateway->Take(d, 0, 99, Use::kCopy)->bytes().size(), 99u);
  d.nbytes = 101;
  EXPECT_EQ(ReasonText(gateway->Take(d, 0, 1, Use::kCopy).status()), "out_of_range");
}

TEST_F(MappedGatewayTest, ViewsStayWithinTheShareCopiesDoNotCount) {
  auto gateway = Map();
  const uint64_t half = kArena / 8;
  const wire::Descriptor a = Publish(1, 1, 0, half);
  const wire::Descriptor b = Publish(2, 2, half, half);
  const wire::Descriptor c = Publish(3, 3, 2 * half, 1);
  std::optional<Claim> first = *gateway->Take(a, 0, 1, Use::kView);
  const Claim again = *gateway->Take(a, 0, half, Use::kView);  // the same lease counts once
  const Claim second = *gateway->Take(b, 0, half, Use::kView);
  const absl::Status full = gateway->Take(c, 0, 1, Use::kView).status();
  EXPECT_EQ(ReasonText(full), "claim_limit");
  EXPECT_THAT(std::string(full.message()), HasSubstr("max_claim_percent"));
  EXPECT_EQ(words_[3].load(), 0u);
  Claim copy = *gateway->Take(c, 0, 1, Use::kCopy);
  EXPECT_EQ(ReasonText(gateway->Take(c, 0, 1, Use::kView).status()), "claim_limit");
  EXPECT_EQ(words_[3].load(), 3u);
  first.reset();
  EXPECT_EQ(ReasonText(gateway->Take(c, 0, 1, Use::kView).status()), "claim_limit");
}

TEST_F(MappedGatewayTest, MemoryThatIsNotAsAnnouncedIsNotMapped) {
  const auto reason = [&](std::vector<UniqueFd> fds) {
    return ReasonText(Map(std::move(fds)).status());
  };
  const size_t fds_before = OpenFds(), mappings_before = MemfdMappings();
  for (size_t i = 0; i < 3; ++i) {
    std::vector<UniqueFd> fds = Fds();
    fds[i] = MakeMemfd(4096 * 16, false);
    EXPECT_EQ(reason(std::move(fds)), "protocol_error") << "unsealed " << i;
    fds = Fds();
    fds[i] = MakeMemfd(i == 0 ? kArena - 1 : 8);
    EXPECT_EQ(reason(std::move(fds)), "protocol_error") << "short " << i;
    fds = Fds();
    fds[i] = UniqueFd(::dup(peer_.get()));
    EXPECT_EQ(reason(std::move(fds)), "protocol_error") << "no memory " << i;
  }
  std::vector<UniqueFd> two = Fds();
  two.pop_back();
  EXPECT_EQ(reason(std::move(two)), "protocol_error");
  EXPECT_EQ(reason({}), "protocol_error");
  const wire::LocalWelcome good = welcome_;
  for (uint64_t entries : {uint64_t{0}, kEntries * 512, uint64_t{1} << 32, uint64_t{1} << 58,
                           std::numeric_limits<uint64_t>::max()}) {
    welcome_.table_entries = entries;
    EXPECT_EQ(reason(Fds()), "protocol_error") << entries;
  }
  for (uint64_t bytes : {uint64_t{0}, kArena + 1, std::numeric_limits<uint64_t>::max()}) {
    welcome_ = good;
    welcome_.arena_bytes = bytes;
    EXPECT_EQ(reason(Fds()), "protocol_error") << bytes;
  }
  peer_.Reset();
  EXPECT_EQ(OpenFds(), fds_before);
  EXPECT_EQ(MemfdMappings(), mappings_before);
}

TEST_F(MappedGatewayTest, MessagesThatDoNotFitGoOutLater) {
  auto gateway = Map();
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  ASSERT_TRUE(gateway->Watch(epoll.get(), 5).ok());
  constexpr uint64_t kMany = 5000;  // far more than a socket's buffer holds
  for (uint64_t i = 1; i <= kMany; ++i) gateway->TellDone({.id = i, .generation = i});
  uint64_t heard = 0;
  for (uint64_t turns = 0; heard < kMany && turns < kMany; ++turns) {
    while (const auto lease = Heard()) EXPECT_EQ(lease->id, ++heard);  // in order
    epoll_event event = {};
    if (::epoll_wait(epoll.get(), &event, 1, 0) == 1) {
      EXPECT_EQ(uint64_t{event.data.u64}, 5u);  // the struct is packed
      gateway->Flush();
    }
  }
  EXPECT_EQ(heard, kMany);
  epoll_event event;
  EXPECT_EQ(::epoll_wait(epoll.get(), &event, 1, 0), 0);  // and it does not go on asking for room
}

TEST_F(MappedGatewayTest, SurvivesTheGateway) {
  auto gateway = Map();
  const wire::Descriptor d = Publish(3, 77, 0, 100);
  std::optional<Claim> claim = *gateway->Take(d, 0, 100, Use::kView);
  gateway.reset();
  peer_.Reset();
  EXPECT_EQ(claim->bytes()[99], std::byte{0});
  claim->SetDone();
  claim.reset();
  EXPECT_EQ(words_[3].load(), 0u);
}

TEST_F(MappedGatewayTest, AForkedChildNeitherClaimsNorReleases) {
  auto gateway = Map();
  const wire::Descriptor d = Publish(3, 77, 0, 100);
  auto claim = std::make_unique<Claim>(*gateway->Take(d, 0, 100, Use::kView));
  claim->SetDone();
  ChildProcess child([&]() -> ChildProcess::Handler {
    return [&](std::string_view, std::string_view) {
      claim.reset();
      std::string answer = ReasonText(gateway->Take(d, 0, 100, Use::kView).status());
      gateway.reset();
      return answer;
    };
  });
  EXPECT_EQ(child.Ask("use"), "lane_off");
  EXPECT_EQ(words_[3].load(), 77u);
  EXPECT_EQ(Heard(), std::nullopt);
  pollfd wait = {.fd = peer_.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&wait, 1, 0), 0);  // nor has it shut the parent's connection
}

TEST_F(MappedGatewayTest, ClosesItsConnectionThoughAForkedChildHoldsIt) {
  auto gateway = Map();
  const pid_t sleeper = ForkSleeper();
  gateway.reset();
  pollfd wait = {.fd = peer_.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&wait, 1, 60'000), 1);
  ::kill(sleeper, SIGKILL);
  ::waitpid(sleeper, nullptr, 0);
}

TEST_F(MappedGatewayTest, ManyThreadsShareOneLease) {
  auto gateway = Map();
  const wire::Descriptor d = Publish(3, 77, 0, 100);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        const auto claim = gateway->Take(d, 0, 100, i % 2 == 0 ? Use::kView : Use::kCopy);
        ASSERT_TRUE(claim.ok());
        ASSERT_EQ(words_[3].load(), 77u);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(words_[3].load(), 0u);
}

}  // namespace
}  // namespace tensorferry::engine
