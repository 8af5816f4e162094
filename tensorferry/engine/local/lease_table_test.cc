#include "tensorferry/engine/local/lease_table.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensorferry/engine/local/local_testing.h"
#include "tensorferry/engine/local/shared_memory.h"

namespace tensorferry::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint32_t kEntries = 16;

PublishedLease LeaseOf(uint64_t id, uint64_t generation) {
  return {.ref = {.id = id, .generation = generation, .token = {7}},
          .payload_offset = 64 * id,
          .nbytes = 10};
}

class LeaseTableTest : public ::testing::Test {
 protected:
  LeaseTableTest()
      : table_(*LeaseTable::Create(kEntries, nullptr)),
        seen_(*SharedMemory::Map(table_->fd(), kEntries * sizeof(TableEntry),
                                 SharedMemory::Access::kRead, "table")) {}

  const TableEntry& Entry(uint64_t id) {
    return reinterpret_cast<const TableEntry*>(seen_.data())[id];
  }
  // A new worker's board, as the worker maps it.
  ClaimWord* AddBoard(uint64_t worker) {
    boards_.push_back(*SharedMemory::Map(*table_->AddBoard(worker), kEntries * sizeof(ClaimWord),
                                         SharedMemory::Access::kReadWrite, "board"));
    return reinterpret_cast<ClaimWord*>(boards_.back().data());
  }

  std::unique_ptr<LeaseTable> table_;
  SharedMemory seen_;
  std::vector<SharedMemory> boards_;
};

TEST_F(LeaseTableTest, ShowsALeaseFromPublishToRetire) {
  EXPECT_EQ(Entry(3).generation.load(), 0u);
  const PublishedLease lease = LeaseOf(3, 99);
  table_->Publish(lease);
  EXPECT_EQ(Entry(3).generation.load(), 99u);
  EXPECT_EQ(Entry(3).payload_offset.load(), 192u);
  EXPECT_EQ(Entry(3).nbytes.load(), 10u);
  EXPECT_TRUE(Entry(3).HasToken({7}));
  EXPECT_FALSE(Entry(3).HasToken({8}));
  wire::Token last_differs = {7};
  last_differs[15] = 1;
  EXPECT_FALSE(Entry(3).HasToken(last_differs));
  EXPECT_TRUE(table_->Retire(lease.ref));
  EXPECT_EQ(Entry(3).generation.load(), 0u);
}

TEST_F(LeaseTableTest, WorkersCannotWriteToTheTable) {
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, table_->fd(), 0), MAP_FAILED);
}

TEST_F(LeaseTableTest, AClaimDelaysTheEndUntilItGoes) {
  ClaimWord* board = AddBoard(1);
  ClaimWord* other = AddBoard(2);
  const PublishedLease lease = LeaseOf(5, 42);
  table_->Publish(lease);
  board[5] = 42;
  other[5] = 42;
  EXPECT_FALSE(table_->Retire(lease.ref));
  EXPECT_TRUE(table_->waiting());
  EXPECT_THAT(table_->TakeQuiesced(), IsEmpty());
  board[5] = 0;
  EXPECT_THAT(table_->TakeQuiesced(), IsEmpty());
  other[5] = 0;
  EXPECT_THAT(table_->TakeQuiesced(), ElementsAre(lease.ref));
  EXPECT_THAT(table_->TakeQuiesced(), IsEmpty());
  EXPECT_FALSE(table_->waiting());
}

TEST_F(LeaseTableTest, ADeadWorkersClaimsAreVoid) {
  ClaimWord* board = AddBoard(1);
  ClaimWord* other = AddBoard(2);
  for (uint64_t id : {1, 2, 3}) table_->Publish(LeaseOf(id, 10 + id));
  board[1] = 11;
  board[2] = 12;
  other[2] = 12;
  board[3] = 13;
  for (uint64_t id : {1, 2}) EXPECT_FALSE(table_->Retire(LeaseOf(id, 10 + id).ref));
  table_->RemoveBoard(1);
  EXPECT_THAT(table_->TakeQuiesced(), ElementsAre(LeaseOf(1, 11).ref));
  EXPECT_TRUE(table_->Retire(LeaseOf(3, 13).ref));
  table_->RemoveBoard(2);
  EXPECT_THAT(table_->TakeQuiesced(), ElementsAre(LeaseOf(2, 12).ref));
  EXPECT_EQ(table_->boards(), 0u);
}

TEST_F(LeaseTableTest, OnlyTheLeasesOwnGenerationClaimsIt) {
  ClaimWord* board = AddBoard(1);
  for (uint64_t id = 0; id < kEntries; ++id) board[id] = ~uint64_t{0} - id;
  table_->Publish(LeaseOf(4, 1000));
  EXPECT_TRUE(table_->Retire(LeaseOf(4, 1000).ref));
}

TEST_F(LeaseTableTest, AnIdIsUsedAgainForAnotherGeneration) {
  ClaimWord* board = AddBoard(1);
  table_->Publish(LeaseOf(0, 1));
  EXPECT_TRUE(table_->Retire(LeaseOf(0, 1).ref));
  board[0] = 1;  // a worker with an old descriptor tries, and will see that it lost
  table_->Publish(LeaseOf(0, 2));
  EXPECT_TRUE(table_->Retire(LeaseOf(0, 2).ref));
}

// The heart of it: a claim that the claimer believes in is never missed by Retire. Two threads go
// through the same leases side by side, one claims them, the other retires them.
TEST(LeaseTableRaceTest, ClaimAndRetireNeverMissEachOther) {
  constexpr uint32_t kLeases = 8192;
  auto table = *LeaseTable::Create(kLeases, nullptr);
  const auto seen = *SharedMemory::Map(table->fd(), kLeases * sizeof(TableEntry),
                                       SharedMemory::Access::kRead, "table");
  const auto* entries = reinterpret_cast<const TableEntry*>(seen.data());
  const auto board = *SharedMemory::Map(*table->AddBoard(1), kLeases * sizeof(ClaimWord),
                                        SharedMemory::Access::kReadWrite, "board");
  auto* words = reinterpret_cast<ClaimWord*>(board.data());
  std::atomic<uint64_t> claimer_at = 0, retirer_at = 0;
  // Waits a little for the other one, but does not depend on being scheduled together with it.
  const auto meet = [](std::atomic<uint64_t>& ours, const std::atomic<uint64_t>& theirs,
                       uint64_t at) {
    ours.store(at);
    for (int i = 0; i < 200 && theirs.load() < at; ++i) {
    }
  };
  std::vector<char> believed(kLeases), freed(kLeases);
  for (uint64_t round = 0; round < 10; ++round) {
    const auto generation = [&](uint64_t id) { return round * kLeases + id + 1; };
    for (uint64_t id = 0; id < kLeases; ++id) {
      words[id].store(0);
      table->Publish(LeaseOf(id, generation(id)));
    }
    std::thread claimer([&] {
      for (uint64_t id = 0; id < kLeases; ++id) {
        meet(claimer_at, retirer_at, generation(id));
        words[id].store(generation(id));
        believed[id] = entries[id].generation.load() == generation(id);
      }
    });
    for (uint64_t id = 0; id < kLeases; ++id) {
      meet(retirer_at, claimer_at, generation(id));
      freed[id] = table->Retire(LeaseOf(id, generation(id)).ref);
    }
    claimer.join();
    for (uint64_t id = 0; id < kLeases; ++id) {
      ASSERT_FALSE(believed[id] && freed[id]) << "lease " << id << " of round " << round;
      words[id].store(0);
    }
    EXPECT_EQ(table->TakeQuiesced().size(),
              static_cast<size_t>(std::count(freed.begin(), freed.end(), 0)));
  }
}

}  // namespace
}  // namespace tensorferry::engine
