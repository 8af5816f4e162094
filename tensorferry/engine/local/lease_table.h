// The exporter's half of the claim protocol (table.h): the lease table, the boards of the workers,
// and the ended leases that are still claimed.
//
//   auto table = LeaseTable::Create(max_leases, log);
//   auto board = (*table)->AddBoard(worker);          // its descriptor goes to the worker
//   (*table)->Publish(lease);
//   if (!(*table)->Retire(lease.ref)) ...             // some board claims it
//   (*table)->RemoveBoard(worker);                    // the worker died: its claims are void
//   for (const wire::LeaseRef& ref : (*table)->TakeQuiesced()) ...
//
// Thread-safety: all calls from any thread. A board that is added during Retire is either seen by
// it, or its worker sees the lease as ended.
// Ownership: owns the table's and the boards' memory.
#ifndef TENSORFERRY_ENGINE_LOCAL_LEASE_TABLE_H_
#define TENSORFERRY_ENGINE_LOCAL_LEASE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "tensorferry/arena/mapping.h"
#include "tensorferry/base/log.h"
#include "tensorferry/engine/export_engine.h"
#include "tensorferry/engine/local/table.h"
#include "tensorferry/wire/descriptor.h"

namespace tensorferry::engine {

class LeaseTable {
 public:
  // kNoMemory.
  static absl::StatusOr<std::unique_ptr<LeaseTable>> Create(uint32_t max_leases, LogSink log);

  uint32_t entries() const { return entries_; }
  int fd() const { return table_->fd(); }

  // The id's former lease has been retired, and quiesced if Retire returned false.
  void Publish(const PublishedLease& lease);
  // False: still claimed; TakeQuiesced will return it once.
  bool Retire(const wire::LeaseRef& ref);

  // Returns the descriptor of the new board, which stays ours. kNoMemory.
  absl::StatusOr<int> AddBoard(uint64_t worker);
  void RemoveBoard(uint64_t worker);
  size_t boards() const;

  // Leases whose Retire returned false and that no board claims any more.
  std::vector<wire::LeaseRef> TakeQuiesced();
  bool waiting() const;

 private:
  LeaseTable(uint32_t max_leases, std::unique_ptr<arena::Mapping> table, LogSink log);
  bool Claimed(const wire::LeaseRef& ref) const;

  const uint32_t entries_;
  const std::unique_ptr<arena::Mapping> table_;
  const LogSink log_;

  mutable std::mutex mutex_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<arena::Mapping>> boards_;  // by worker
  std::vector<wire::LeaseRef> waiting_;  // retired, but claimed when last looked at
};

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_LOCAL_LEASE_TABLE_H_
