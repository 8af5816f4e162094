// What a NIXL listener answers: no length is trusted, and a renamed agent differs in its name alone.
#include <string>

#include "tensorferry/base/fuzz_testing.h"
#include "tensorferry/wire/nixl_messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tensorferry::wire;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  NixlMessageReader reader;
  reader.Append(bytes);
  size_t taken = 0;
  while (true) {
    const auto message = reader.Next();
    if (!message.ok() || !message->has_value()) break;
    taken += EncodeNixlMessage(**message).size();
    (void)MetadataOf(**message);
  }
  tensorferry::Require(taken + reader.buffered() == size);

  const auto name = NixlAgentName(bytes);
  const auto renamed = RenameNixlAgent(bytes, "another");
  tensorferry::Require(name.ok() == renamed.ok());
  if (name.ok()) {
    tensorferry::Require(*NixlAgentName(*renamed) == "another");
    tensorferry::Require(*RenameNixlAgent(*renamed, *name) == bytes);
  }
  return 0;
}
