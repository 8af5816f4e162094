#include "tensorferry/engine/local/lease_table.h"

#include <algorithm>
#include <utility>

namespace tensorferry::engine {
namespace {

TableEntry* EntriesOf(const arena::Mapping& table) {
  return reinterpret_cast<TableEntry*>(table.data());
}

const ClaimWord* WordsOf(const arena::Mapping& board) {
  return reinterpret_cast<const ClaimWord*>(board.data());
}

}  // namespace

absl::StatusOr<std::unique_ptr<LeaseTable>> LeaseTable::Create(uint32_t max_leases, LogSink log) {
  auto table = arena::Mapping::Create({.bytes = uint64_t{max_leases} * sizeof(TableEntry),
                                       .name = "tensorferry-leases",
                                       .setting = "max_leases",
                                       .prefault = true,
                                       .read_only_to_others = true,
                                       .log = log});
  if (!table.ok()) return table.status();
  (*table)->WaitPrefaulted();  // small, and Publish is not to meet a page fault
  return std::unique_ptr<LeaseTable>(new LeaseTable(max_leases, *std::move(table), std::move(log)));
}

LeaseTable::LeaseTable(uint32_t max_leases, std::unique_ptr<arena::Mapping> table, LogSink log)
    : entries_(max_leases), table_(std::move(table)), log_(std::move(log)) {}

void LeaseTable::Publish(const PublishedLease& lease) {
  TableEntry& entry = EntriesOf(*table_)[lease.ref.id];
  entry.payload_offset.store(lease.payload_offset, std::memory_order_relaxed);
  entry.nbytes.store(lease.nbytes, std::memory_order_relaxed);
  entry.SetToken(lease.ref.token);
  entry.generation.store(lease.ref.generation);
}

bool LeaseTable::Retire(const wire::LeaseRef& ref) {
  // Before the lock: a worker that is added from here on sees it.
  EntriesOf(*table_)[ref.id].generation.store(0);
  std::lock_guard lock(mutex_);
  if (!Claimed(ref)) return true;
  waiting_.push_back(ref);
  return false;
}

bool LeaseTable::Claimed(const wire::LeaseRef& ref) const {
  return std::any_of(boards_.begin(), boards_.end(), [&](const auto& board) {
    return WordsOf(*board.second)[ref.id].load() == ref.generation;
  });
}

absl::StatusOr<int> LeaseTable::AddBoard(uint64_t worker) {
  auto board = arena::Mapping::Create({.bytes = uint64_t{entries_} * sizeof(ClaimWord),
                                       .name = "tensorferry-claims",
                                       .setting = "max_leases",
                                       .prefault = false,
                                       .read_only_to_others = false,
                                       .log = log_});
  if (!board.ok()) return board.status();
  const int fd = (*board)->fd();
  std::lock_guard lock(mutex_);
  boards_.emplace(worker, *std::move(board));
  return fd;
}

void LeaseTable::RemoveBoard(uint64_t worker) {
  std::unique_ptr<arena::Mapping> board;  // unmapped outside of the lock
  std::lock_guard lock(mutex_);
  const auto it = boards_.find(worker);
  if (it == boards_.end()) return;
  board = std::move(it->second);
  boards_.erase(it);
}

size_t LeaseTable::boards() const {
  std::lock_guard lock(mutex_);
  return boards_.size();
}

std::vector<wire::LeaseRef> LeaseTable::TakeQuiesced() {
  std::lock_guard lock(mutex_);
  const auto quiesced = std::partition(waiting_.begin(), waiting_.end(),
                                       [&](const wire::LeaseRef& ref) { return Claimed(ref); });
  std::vector<wire::LeaseRef> out(quiesced, waiting_.end());
  waiting_.erase(quiesced, waiting_.end());
  return out;
}

bool LeaseTable::waiting() const {
  std::lock_guard lock(mutex_);
  return !waiting_.empty();
}

}  // namespace tensorferry::engine
