// Claims against retirements: no byte of a lease changes while a reader holds it, whatever the
// order of things. A gateway publishes, retires and at once overwrites a handful of leases;
// readers, in this process and in others, claim them all the time and look at every byte.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/host.h"
#include "tensorferry/engine/engine_testing.h"
#include "tensorferry/engine/local/local_export_engine.h"
#include "tensorferry/engine/local/local_pull_engine.h"
#include "tensorferry/engine/local/local_testing.h"

namespace tensorferry::engine {
namespace {

constexpr uint64_t kSlots = 16;
constexpr uint32_t kReaders = 4;
constexpr uint64_t kLeaseBytes = 2048;
constexpr uint64_t kWords = kLeaseBytes / sizeof(uint64_t);

wire::Token TokenOf(uint64_t generation) {
  wire::Token token = {};
  std::memcpy(token.data(), &generation, sizeof(generation));
  return token;
}

wire::LeaseRef RefOf(uint64_t slot, uint64_t generation) {
  return {.id = slot, .generation = generation, .token = TokenOf(generation)};
}

// Seen by all processes: which generation of each lease was published last.
struct Board {
  std::array<std::atomic<uint64_t>, kSlots> latest = {};
  // What each reader has read.
  std::array<std::atomic<uint64_t>, kReaders> reads = {};
  std::atomic<bool> stop = false;
};

// Inherited by children.
Board* MakeBoard() {
  void* memory =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  return new (memory) Board;
}

// The lease's bytes are all its generation.
bool Intact(std::span<const std::byte> bytes, uint64_t generation) {
  for (uint64_t i = 0; i < kWords; ++i) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i * sizeof(word), sizeof(word));
    if (word != generation) return false;
  }
  return true;
}

struct Tally {
  uint64_t views = 0, copies = 0, ended = 0;
  std::string wrong;  // empty: nothing
};

// Reads leases until the board says stop.
Tally ReadUntilStopped(Board& board, PullEngine& engine, const wire::LocalWay& way,
                       uint32_t reader) {
  Tally tally;
  std::minstd_rand random(reader + 1);
  std::vector<std::byte> memory(kLeaseBytes);
  std::vector<std::pair<Landed, uint64_t>> held;
  while (!board.stop && tally.wrong.empty()) {
    const uint64_t slot = random() % kSlots;
    const uint64_t generation = board.latest[slot];
    if (generation == 0) continue;
    wire::Descriptor d;
    d.instance = {9};
    d.lease = RefOf(slot, generation);
    d.nbytes = kLeaseBytes;
    d.ways = {way};
    const bool copy = random() % 3 == 0;
    auto op = engine.Start({.descriptor = &d,
                            .length = kLeaseBytes,
                            .into = copy ? std::span(memory) : std::span<std::byte>()});
    absl::StatusOr<Landed> landed = DriveOp(*op);
    if (!landed.ok()) {
      if (ReasonOf(landed.status()) != Reason::kLeaseEnded)
        tally.wrong = landed.status().ToString();
      ++tally.ended;
    } else if (!Intact(landed->bytes, generation)) {
      tally.wrong = copy ? "copied other bytes" : "viewed other bytes";
    } else if (copy) {
      ++tally.copies;
    } else {
      ++tally.views;
      held.emplace_back(*std::move(landed), generation);
    }
    board.reads[reader] = tally.views + tally.copies;
    if (random() % 16 == 0) std::this_thread::yield();
    if (held.size() > random() % 4) {
      const size_t i = random() % held.size();
      if (!Intact(held[i].first.bytes, held[i].second)) tally.wrong = "bytes changed under a view";
      held.erase(held.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  return tally;
}

// The gateway's side: reuses a lease's memory the moment that it may.
class Recycler : public LeaseSource {
 public:
  Recycler() : fd_(MakeMemfd(kSlots * kLeaseBytes)) {
    words_ = static_cast<uint64_t*>(
        ::mmap(nullptr, kSlots * kLeaseBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0));
  }
  ~Recycler() override { ::munmap(words_, kSlots * kLeaseBytes); }

  ArenaView arena() const {
    return {.data = reinterpret_cast<std::byte*>(words_),
            .size = kSlots * kLeaseBytes,
            .memfd = fd_.get(),
            .max_leases = kSlots,
            .instance = {9}};
  }

  // At least `rounds` times, and until the readers from `first` to `last` have all read something.
  void Cycle(Board& board, LocalExportEngine& engine, uint64_t rounds, uint32_t first,
             uint32_t last) {
    std::minstd_rand random(7);
    const auto all_have_read = [&] {
      return std::all_of(board.reads.begin() + first, board.reads.begin() + last,
                         [](const auto& reads) { return reads > 0; });
    };
    while (generation_ < rounds || !all_have_read()) {
      const uint64_t slot = random() % kSlots;
      if (!Vacate(slot, engine)) {
        std::this_thread::yield();
        continue;
      }
      const uint64_t generation = ++generation_;
      Fill(slot, ~uint64_t{0});  // nobody may see this
      Fill(slot, generation);
      published_[slot] = generation;
      engine.Publish({.ref = RefOf(slot, generation),
                      .payload_offset = slot * kLeaseBytes,
                      .nbytes = kLeaseBytes});
      board.latest[slot] = generation;
      if (random() % 4 == 0) std::this_thread::yield();
    }
    board.stop = true;
  }

  uint64_t claimed() const { return claimed_; }
  uint64_t too_many() const { return too_many_; }

  absl::StatusOr<PinnedBytes> Open(const wire::LeaseRef&, uint64_t, uint64_t) override {
    return absl::UnimplementedError("nobody asks");
  }
  absl::StatusOr<std::span<const std::byte>> Locate(const wire::LeaseRef&, uint64_t,
                                                    uint64_t) override {
    return absl::UnimplementedError("nobody asks");
  }
  void Done(const wire::LeaseRef&) override {}
  bool DoneByKey(int64_t) override { return false; }
  void Quiesced(const wire::LeaseRef& ref) override {
    std::lock_guard lock(mutex_);
    if (quiesced_[ref.id] == ref.generation) ++too_many_;
    quiesced_[ref.id] = ref.generation;
  }

 private:
  void Fill(uint64_t slot, uint64_t value) {
    // Through volatile, so that the poison is really written between the two patterns.
    volatile uint64_t* words = words_ + slot * kWords;
    for (uint64_t i = 0; i < kWords; ++i) words[i] = value;
  }
  // Whether nobody reads the slot's last lease any more.
  bool Vacate(uint64_t slot, LocalExportEngine& engine) {
    const uint64_t generation = published_[slot];
    if (generation == 0) return true;
    if (retired_[slot] == generation) {
      std::lock_guard lock(mutex_);
      return quiesced_[slot] == generation;
    }
    retired_[slot] = generation;
    if (engine.Retire(RefOf(slot, generation))) return true;
    ++claimed_;
    return false;
  }

  UniqueFd fd_;
  uint64_t* words_ = nullptr;
  uint64_t generation_ = 0;
  uint64_t claimed_ = 0;
  std::array<uint64_t, kSlots> published_ = {};
  std::array<uint64_t, kSlots> retired_ = {};
  std::mutex mutex_;
  std::array<uint64_t, kSlots> quiesced_ = {};
  uint64_t too_many_ = 0;
};

class LocalRaceTest : public ::testing::Test {
 protected:
  ~LocalRaceTest() override { ::munmap(board_, sizeof(Board)); }

  void StartGateway() {
    auto engine = LocalExportEngine::Create({.socket_path = path_, .max_claim_percent = 100});
    ASSERT_TRUE(engine.ok()) << engine.status();
    gateway_ = *std::move(engine);
    ASSERT_TRUE(gateway_->Start(recycler_.arena(), &recycler_).ok());
  }

  uint64_t Newest() const {
    uint64_t newest = 0;
    for (const auto& latest : board_->latest) newest = std::max(newest, latest.load());
    return newest;
  }

  TempDir dir_;
  const std::string path_ = dir_ / "gw.sock";
  Board* const board_ = MakeBoard();
  Recycler recycler_;
  std::unique_ptr<LocalExportEngine> gateway_;
};

TEST_F(LocalRaceTest, ThreadsOfOneWorker) {
  StartGateway();
  const auto way = std::get<wire::LocalWay>(gateway_->way());
  auto engine = CreateLocalPullEngine({});
  std::vector<Tally> tallies(3);
  std::vector<std::thread> readers;
  for (uint32_t i = 0; i < tallies.size(); ++i) {
    readers.emplace_back([&, i] { tallies[i] = ReadUntilStopped(*board_, *engine, way, i); });
  }
  recycler_.Cycle(*board_, *gateway_, 2000, 0, 3);
  uint64_t read = 0;
  for (size_t i = 0; i < readers.size(); ++i) {
    readers[i].join();
    EXPECT_EQ(tallies[i].wrong, "");
    read += tallies[i].views + tallies[i].copies;
  }
  EXPECT_GT(read, 0u);
  EXPECT_EQ(recycler_.too_many(), 0u);
  RecordProperty("read", static_cast<int>(read));
  RecordProperty("claimed_when_retired", static_cast<int>(recycler_.claimed()));
}

TEST_F(LocalRaceTest, ManyWorkersSomeOfWhichDie) {
  std::vector<std::unique_ptr<ChildProcess>> workers;
  for (uint32_t i = 0; i < kReaders; ++i) {
    workers.push_back(std::make_unique<ChildProcess>([&, i]() -> ChildProcess::Handler {
      return [&, i](std::string_view, std::string_view) {
        auto engine = CreateLocalPullEngine({});
        const wire::LocalWay way = {ThisHost().boot_id, path_};
        const Tally tally = ReadUntilStopped(*board_, *engine, way, i);
        if (!tally.wrong.empty()) return tally.wrong;
        return std::string(tally.views + tally.copies > 0 ? "fine" : "read nothing");
      };
    }));
  }
  StartGateway();
  for (auto& worker : workers) worker->Tell("read");
  std::thread killer([&] {
    // In mid-work: while they hold claims, as likely as not.
    for (uint64_t seen : {200, 400}) {
      while (!board_->stop && Newest() < seen) std::this_thread::yield();
      workers[seen / 200 - 1]->Kill();
    }
  });
  recycler_.Cycle(*board_, *gateway_, 2000, 2, kReaders);
  killer.join();
  for (size_t i = 2; i < workers.size(); ++i) EXPECT_EQ(workers[i]->Hear(), "fine");
  EXPECT_EQ(recycler_.too_many(), 0u);
  for (auto& worker : workers) worker->Kill();
  EXPECT_TRUE(Eventually([&] { return gateway_->workers() == 0; }));
}

}  // namespace
}  // namespace tensorferry::engine
