#include "tensorferry/base/socket_owner.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>

namespace tensorferry {
namespace {

struct Listener {
  SocketAddress address;
  uint32_t uid = 0;
};

template <class Number>
bool ParseAll(std::string_view text, int base, Number* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out, base);
  return error == std::errc() && end == text.data() + text.size();
}

// "0100007F:C383": words as the machine holds them, and the port as a number.
std::optional<SocketAddress> ParseKernelAddress(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon != 8 && colon != 32) return std::nullopt;
  uint16_t port = 0;
  if (!ParseAll(text.substr(colon + 1), 16, &port)) return std::nullopt;
  std::array<uint8_t, 16> bytes = {};
  for (size_t i = 0; i < colon / 8; ++i) {
    uint32_t word = 0;
    if (!ParseAll(text.substr(8 * i, 8), 16, &word)) return std::nullopt;
    std::memcpy(bytes.data() + 4 * i, &word, sizeof(word));
  }
  const auto address = SocketAddress::FromBytes(std::span(bytes).first(colon / 2), port);
  if (!address.ok()) return std::nullopt;
  return *address;
}

// sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid ...
std::optional<Listener> ParseLine(const std::string& line) {
  std::istringstream in(line);
  std::string slot, local, remote, state, queues, timer, retransmits, uid_text;
  if (!(in >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid_text)) {
    return std::nullopt;
  }
  constexpr std::string_view kListening = "0A";
  Listener out;
  const auto address = ParseKernelAddress(local);
  if (state != kListening || !address || !ParseAll(uid_text, 10, &out.uid)) return std::nullopt;
  out.address = *address;
  return out;
}

// How well connections to `wanted` fit a listener; 0: they do not reach it.
int Fit(const SocketAddress& listener, const SocketAddress& wanted) {
  constexpr int kExact = 3, kWildcard = 2, kOtherFamilysWildcard = 1;
  if (listener.port() != wanted.port()) return 0;
  if (listener == wanted) return kExact;
  const bool same_family = listener.is_v6() == wanted.is_v6();
  if (listener.IsWildcard())
    return same_family ? kWildcard : wanted.is_v6() ? 0 : kOtherFamilysWildcard;
  if (same_family || wanted.is_v6()) return 0;
  // ::ffff:a.b.c.d
  static constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  const auto bytes = listener.bytes();
  return std::ranges::equal(bytes.first(12), kMapped) &&
                 std::ranges::equal(bytes.last(4), wanted.bytes())
             ? kExact
             : 0;
}

bool IsOfThisHost(const SocketAddress& address) {
  if (address.IsLoopback()) return true;
  const auto local = LocalAddressTowards(address);
  return local.ok() && local->is_v6() == address.is_v6() &&
         std::ranges::equal(local->bytes(), address.bytes());
}

}  // namespace

std::optional<uint32_t> ListeningUid(const SocketAddress& address, const std::string& proc_net) {
  if (!IsOfThisHost(address)) return std::nullopt;
  std::optional<uint32_t> uid;
  int best = 0;
  for (const char* table : {"/tcp", "/tcp6"}) {
    std::ifstream file(proc_net + table);
    for (std::string line; std::getline(file, line);) {
      const auto listener = ParseLine(line);
      if (!listener) continue;
      const int fit = Fit(listener->address, address);
      if (fit <= best) continue;
      best = fit;
      uid = listener->uid;
    }
  }
  return uid;
}

}  // namespace tensorferry
