// What a message says of bytes that are elsewhere, and what it is read into: one type for our own
// descriptors, SMG's, and files that it shares.
//
//   Handle handle{.transport = remote.transport(), .descriptor = remote.descriptor(),
//                 .nbytes = remote.nbytes()};
//   absl::StatusOr<wire::Descriptor> d = DecodeHandle(handle, /*key=*/std::nullopt);
//
// Thread-safety: a value and pure functions.
#ifndef TENSORFERRY_PULLER_HANDLE_H_
#define TENSORFERRY_PULLER_HANDLE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tensorferry/base/export.h"
#include "tensorferry/wire/descriptor.h"

namespace tensorferry {

// A RemoteTensorHandle or ShmHandle, without the protobuf.
struct Handle {
  // Kind of descriptor: "tensorferry", "nixl" (SMG's), "file" (a ShmHandle's name). Empty: one of
  // the first two, by its first bytes.
  std::string transport = {};
  std::string descriptor = {};  // raw bytes
  uint64_t nbytes = 0;          // of payload
  uint64_t offset = 0;          // of a file
};

// `key` is the one that the caller knows: legacy descriptors of SMG and files have none of their
// own. That it is the descriptor's is not checked here. The errors of DecodeDescriptor and
// ParseSmgDescriptor, kSizeMismatch when handle and descriptor disagree, kUnknownTransport.
TENSORFERRY_EXPORT absl::StatusOr<wire::Descriptor> DecodeHandle(const Handle& handle,
                                                                 std::optional<int64_t> key);

}  // namespace tensorferry

#endif  // TENSORFERRY_PULLER_HANDLE_H_
