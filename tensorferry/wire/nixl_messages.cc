#include "tensorferry/wire/nixl_messages.h"

#include "absl/strings/escaping.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/wire/bytes.h"

namespace tensorferry::wire {
namespace {

constexpr std::string_view kBegin = "nixlSerDes|Agent";
constexpr size_t kLengthBytes = 8;

uint64_t LengthAt(std::string_view bytes) {
  return LoadLe<uint64_t>(reinterpret_cast<const std::byte*>(bytes.data()));
}

std::string LengthText(uint64_t length) {
  std::string text(kLengthBytes, '\0');
  StoreLe(reinterpret_cast<std::byte*>(text.data()), length);
  return text;
}

}  // namespace

std::string EncodeNixlMessage(std::string_view body) {
  return LengthText(body.size()).append(body);
}

std::string EncodeNixlMetadata(std::string_view metadata) {
  return LengthText(kNixlMetadata.size() + metadata.size()).append(kNixlMetadata).append(metadata);
}

absl::StatusOr<std::optional<std::string>> NixlMessageReader::Next() {
  if (buffer_.size() < kLengthBytes) return std::nullopt;
  const uint64_t length = LengthAt(buffer_);
  if (length > kMaxNixlMessageBytes) {
    return MakeError(Reason::kProtocol,
                     StrCat("nixl: a message of ", length, " bytes; no more than ",
                            kMaxNixlMessageBytes, " are expected: is it a NIXL listener?"));
  }
  if (buffer_.size() - kLengthBytes < length) return std::nullopt;
  std::string body = buffer_.substr(kLengthBytes, length);
  buffer_.erase(0, kLengthBytes + length);
  return body;
}

absl::StatusOr<std::string_view> MetadataOf(std::string_view message) {
  if (message.starts_with(kNixlMetadata)) return message.substr(kNixlMetadata.size());
  return MakeError(Reason::kProtocol,
                   StrCat("nixl: the gateway's listener answers \"",
                          absl::CHexEscape(AbslView(message.substr(0, kNixlMetadata.size()))),
                          "\", not ", kNixlMetadata));
}

absl::StatusOr<std::string_view> NixlAgentName(std::string_view metadata) {
  const auto unknown = [](std::string_view why) {
    return MakeError(Reason::kUnknownVersion,
                     StrCat("nixl: metadata of a form that is not known here (", why, ")"));
  };
  if (!metadata.starts_with(kBegin)) return unknown("another beginning");
  const std::string_view rest = metadata.substr(kBegin.size());
  if (rest.size() < kLengthBytes) return unknown("they end early");
  const uint64_t length = LengthAt(rest);
  if (length >= rest.size() - kLengthBytes) return unknown("the name is longer than they are");
  if (rest[kLengthBytes + length] != '|') return unknown("the name has another end");
  if (length == 0) return unknown("the name is empty");
  return rest.substr(kLengthBytes, length);
}

absl::StatusOr<std::string> RenameNixlAgent(std::string_view metadata, std::string_view name) {
  const absl::StatusOr<std::string_view> old = NixlAgentName(metadata);
  if (!old.ok()) return old.status();
  const size_t end = kBegin.size() + kLengthBytes + old->size();
  return std::string(kBegin)
      .append(LengthText(name.size()))
      .append(name)
      .append(metadata.substr(end));
}

}  // namespace tensorferry::wire
