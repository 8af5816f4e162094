// What a NIXL agent says to fetch another one's metadata, and the one field of that metadata that
// we change.
//
//   send(EncodeNixlMessage(kNixlFetch));                       // u64 length | "NIXLCOMM:SEND"
//   NixlMessageReader reader;              // the answer: u64 length | "NIXLCOMM:LOAD" | metadata
//   while (...) { reader.Append(received); auto message = reader.Next(); }
//   auto renamed = RenameNixlAgent(metadata, "smg-gateway-encode@10.0.0.7:18515#3");
//
// Metadata start with "nixlSerDes|", then per field a tag, a u64 length, the bytes and '|'; the
// first field, "Agent", is the name under which a puller keeps them. Two gateways of one name can
// then be kept apart (NIXL refuses the second otherwise). Layout: read off NIXL 1.3 to 1.5; what
// does not look so is kUnknownVersion. Decoding trusts no length.
// Thread-safety: values and pure functions.
#ifndef TENSORFERRY_WIRE_NIXL_MESSAGES_H_
#define TENSORFERRY_WIRE_NIXL_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tensorferry::wire {

inline constexpr std::string_view kNixlFetch = "NIXLCOMM:SEND";
inline constexpr std::string_view kNixlMetadata = "NIXLCOMM:LOAD";
// Some hundred bytes a registered region; stock agents have one.
inline constexpr uint64_t kMaxNixlMessageBytes = uint64_t{1} << 20;

std::string EncodeNixlMessage(std::string_view body);
// kNixlMetadata with the metadata behind it.
std::string EncodeNixlMetadata(std::string_view metadata);

// Cuts a stream into messages.
class NixlMessageReader {
 public:
  void Append(std::string_view bytes) { buffer_.append(bytes); }
  // The next whole message's body; none yet; kProtocol when its length cannot be.
  absl::StatusOr<std::optional<std::string>> Next();
  // Bytes that wait for the rest of their message.
  size_t buffered() const { return buffer_.size(); }

 private:
  std::string buffer_;
};

// The metadata in a message that carries some; kProtocol for any other.
absl::StatusOr<std::string_view> MetadataOf(std::string_view message);

// kUnknownVersion when the metadata do not begin as described above.
absl::StatusOr<std::string_view> NixlAgentName(std::string_view metadata);
absl::StatusOr<std::string> RenameNixlAgent(std::string_view metadata, std::string_view name);

}  // namespace tensorferry::wire

#endif  // TENSORFERRY_WIRE_NIXL_MESSAGES_H_
