// Addresses and networks in text: what parses prints as a text that means the same.
#include <string>
#include <string_view>

#include "tensorferry/base/error.h"
#include "tensorferry/base/fuzz_testing.h"
#include "tensorferry/base/net.h"

namespace tensorferry {
namespace {

void CheckAddress(std::string_view text) {
  const auto address = SocketAddress::Parse(text);
  if (!address.ok()) {
    Require(ReasonOf(address.status()) == Reason::kBadAddress);
    return;
  }
  Require(*SocketAddress::Parse(address->ToString()) == *address);
  Require(*SocketAddress::ParseHost(address->HostText(), address->port()) == *address);
  Require(*SocketAddress::FromBytes(address->bytes(), address->port()) == *address);
  sockaddr_storage storage;
  address->ToSockaddr(&storage);
  Require(*SocketAddress::FromSockaddr(storage) == *address);
  if (address->CheckDialable().ok()) Require(address->port() != 0 && !address->IsWildcard());
  Require(!(address->IsLoopback() && address->IsWildcard()));
  Require(AllowList::Loopback().Allows(*address) >= address->IsLoopback());
}

void CheckNetwork(std::string_view text) {
  const auto list = AllowList::Parse({text});
  if (!list.ok()) {
    Require(ReasonOf(list.status()) == Reason::kBadAddress);
    return;
  }
  const std::string printed = list->ToString();
  Require(AllowList::Parse({printed})->ToString() == printed);
  const std::string_view host = text.substr(0, text.find('/'));
  Require(list->Allows(*SocketAddress::ParseHost(host, 1)));
}

}  // namespace
}  // namespace tensorferry

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  tensorferry::CheckAddress(text);
  tensorferry::CheckNetwork(text);
  return 0;
}
