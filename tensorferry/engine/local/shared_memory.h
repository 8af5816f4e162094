// Memory that another process sent as a sealed memfd, mapped here.
//
//   auto memory = SharedMemory::Map(fd, bytes, SharedMemory::Access::kRead, "lease table");
//
// Trusts nothing: without the seals against shrinking and growing, or with fewer bytes than said,
// it is not mapped, so that touching it cannot raise SIGBUS. Not inherited over fork, and a child
// leaves the addresses alone when it destroys one.
// Thread-safety: const calls from any thread.
#ifndef TENSORFERRY_ENGINE_LOCAL_SHARED_MEMORY_H_
#define TENSORFERRY_ENGINE_LOCAL_SHARED_MEMORY_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"

namespace tensorferry::engine {

class SharedMemory {
 public:
  enum class Access { kRead, kReadWrite };

  // The descriptor may be closed afterwards. kProtocol, kNoMemory. `what` names it in errors.
  static absl::StatusOr<SharedMemory> Map(int fd, uint64_t bytes, Access access,
                                          std::string_view what);
  SharedMemory(SharedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_), owner_(other.owner_) {}
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory();

  std::byte* data() const { return data_; }
  uint64_t size() const { return bytes_; }

 private:
  SharedMemory(std::byte* data, uint64_t bytes);

  std::byte* data_;
  uint64_t bytes_;
  pid_t owner_;
};

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_LOCAL_SHARED_MEMORY_H_
