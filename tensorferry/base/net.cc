#include "tensorferry/base/net.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/base/text.h"

namespace tensorferry {
namespace {

// RFC 863: a port for a connect() that never sends; some kernels refuse port 0 there.
constexpr uint16_t kDiscardPort = 9;

// Digits only: no sign, no blank, no leading zero (which other programs read as octal).
std::optional<uint32_t> ParseSmallNumber(std::string_view text, uint32_t max) {
  if (text.empty() || text.size() > 5 || (text.size() > 1 && text[0] == '0')) return std::nullopt;
  uint32_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<uint32_t>(c - '0');
  }
  if (value > max) return std::nullopt;
  return value;
}

absl::Status BadAddress(std::string_view text, std::string_view why) {
  return MakeError(Reason::kBadAddress,
                   StrCat("address \"", absl::CHexEscape(AbslView(text)), "\": ", why));
}

bool IsMappedV4(const SocketAddress& a) {
  static constexpr uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return a.is_v6() && std::equal(std::begin(kPrefix), std::end(kPrefix), a.bytes().begin());
}

bool IsMulticast(const SocketAddress& a) {
  return a.is_v6() ? a.bytes()[0] == 0xff : (a.bytes()[0] & 0xf0) == 0xe0;
}

bool IsBroadcast(const SocketAddress& a) {
  return !a.is_v6() && std::ranges::all_of(a.bytes(), [](uint8_t b) { return b == 0xff; });
}

bool IsLinkLocalV6(const SocketAddress& a) {
  return a.is_v6() && a.bytes()[0] == 0xfe && (a.bytes()[1] & 0xc0) == 0x80;
}

// Whether the first `prefix` bits agree.
bool SamePrefix(std::span<const uint8_t> a, std::span<const uint8_t> b, int prefix) {
  const size_t whole = static_cast<size_t>(prefix) / 8;
  if (!std::equal(a.begin(), a.begin() + whole, b.begin())) return false;
  const int rest = prefix % 8;
  return rest == 0 || ((a[whole] ^ b[whole]) >> (8 - rest)) == 0;
}

SocketAddress Unmapped(const SocketAddress& a) {
  if (!IsMappedV4(a)) return a;
  return *SocketAddress::FromBytes(a.bytes().subspan(12), a.port());
}

// `a` with all bits behind the first `prefix` cleared.
SocketAddress Masked(const SocketAddress& a, int prefix) {
  std::array<uint8_t, 16> bytes = {};
  for (size_t i = 0; i < a.bytes().size(); ++i) {
    const int bits = std::clamp(prefix - static_cast<int>(i) * 8, 0, 8);
    bytes[i] = static_cast<uint8_t>(a.bytes()[i] & (0xff00 >> bits));
  }
  return *SocketAddress::FromBytes({bytes.data(), a.bytes().size()}, a.port());
}

}  // namespace

absl::StatusOr<SocketAddress> SocketAddress::ParseHost(std::string_view host, uint16_t port) {
  if (host.empty()) return BadAddress(host, "the host is empty");
  if (host.find('%') != std::string_view::npos) {
    return BadAddress(host, "a scope (%...) means nothing on another host: use a global address");
  }
  SocketAddress out;
  out.port_ = port;
  out.v6_ = host.find(':') != std::string_view::npos;
  const std::string text(host);
  // inet_pton would stop at a NUL and accept what is before it.
  if (host.find('\0') == std::string_view::npos &&
      ::inet_pton(out.v6_ ? AF_INET6 : AF_INET, text.c_str(), out.bytes_.data()) == 1) {
    return out;
  }
  return BadAddress(host, "not a numeric IPv4 or IPv6 address (names are not resolved)");
}

absl::StatusOr<SocketAddress> SocketAddress::Parse(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) {
    return BadAddress(text, "no port: write it as 10.0.0.5:18515 or [::1]:18515");
  }
  const auto port = ParseSmallNumber(text.substr(colon + 1), 65535);
  if (!port) return BadAddress(text, "the port is not a number from 0 to 65535");
  std::string_view host = text.substr(0, colon);
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (bracketed != (host.find(':') != std::string_view::npos)) {
    return BadAddress(text, "brackets belong around IPv6 and only there: write [::1]:18515");
  }
  auto out = ParseHost(host, static_cast<uint16_t>(*port));
  if (!out.ok())
    return Annotate(out.status(), StrCat("\"", absl::CHexEscape(AbslView(text)), "\""));
  return out;
}

absl::StatusOr<SocketAddress> SocketAddress::FromSockaddr(const sockaddr_storage& storage) {
  SocketAddress out;
  if (storage.ss_family == AF_INET) {
    sockaddr_in in = {};
    std::memcpy(&in, &storage, sizeof(in));
    std::memcpy(out.bytes_.data(), &in.sin_addr, 4);
    out.port_ = ntohs(in.sin_port);
    return out;
  }
  if (storage.ss_family == AF_INET6) {
    sockaddr_in6 in = {};
    std::memcpy(&in, &storage, sizeof(in));
    out.v6_ = true;
    std::memcpy(out.bytes_.data(), &in.sin6_addr, 16);
    out.port_ = ntohs(in.sin6_port);
    return out;
  }
  return MakeError(Reason::kBadAddress, StrCat("socket address of family ", storage.ss_family,
                                               ": neither IPv4 nor IPv6"));
}

absl::StatusOr<SocketAddress> SocketAddress::FromBytes(std::span<const uint8_t> bytes,
                                                       uint16_t port) {
  if (bytes.size() != 4 && bytes.size() != 16) {
    return MakeError(Reason::kBadAddress,
                     StrCat("an address of ", bytes.size(), " bytes: IPv4 has 4, IPv6 16"));
  }
  SocketAddress out;
  out.v6_ = bytes.size() == 16;
  out.port_ = port;
  std::ranges::copy(bytes, out.bytes_.begin());
  return out;
}

bool SocketAddress::IsWildcard() const {
  return std::ranges::all_of(bytes(), [](uint8_t b) { return b == 0; });
}

bool SocketAddress::IsLoopback() const {
  if (!v6_) return bytes_[0] == 127;
  return bytes_.back() == 1 &&
         std::all_of(bytes_.begin(), bytes_.end() - 1, [](uint8_t b) { return b == 0; });
}

absl::Status SocketAddress::CheckDialable() const {
  std::string_view why;
  if (port_ == 0) why = "port 0 cannot be dialled";
  if (IsLinkLocalV6(*this)) why = "an IPv6 link-local address needs a scope: use a global one";
  if (IsMappedV4(*this)) why = "an IPv4-mapped address: write the IPv4 address itself";
  if (IsBroadcast(*this)) why = "the broadcast address cannot be dialled";
  if (IsMulticast(*this)) why = "a multicast address cannot be dialled";
  if (IsWildcard()) why = "a wildcard names no host: use one of the host's own addresses";
  return why.empty() ? absl::OkStatus() : BadAddress(ToString(), why);
}

std::string SocketAddress::HostText() const {
  char text[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(v6_ ? AF_INET6 : AF_INET, bytes_.data(), text, sizeof(text));
  return text;
}

std::string SocketAddress::ToString() const {
  return v6_ ? StrCat("[", HostText(), "]:", port_) : StrCat(HostText(), ":", port_);
}

socklen_t SocketAddress::ToSockaddr(sockaddr_storage* out) const {
  *out = {};
  if (v6_) {
    sockaddr_in6 in = {};
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(port_);
    std::memcpy(&in.sin6_addr, bytes_.data(), 16);
    std::memcpy(out, &in, sizeof(in));
    return sizeof(in);
  }
  sockaddr_in in = {};
  in.sin_family = AF_INET;
  in.sin_port = htons(port_);
  std::memcpy(&in.sin_addr, bytes_.data(), 4);
  std::memcpy(out, &in, sizeof(in));
  return sizeof(in);
}

absl::StatusOr<AllowList::Network> AllowList::ParseNetwork(std::string_view text) {
  const auto bad = [&](std::string_view why) {
    return MakeError(Reason::kBadAddress,
                     StrCat("network \"", absl::CHexEscape(AbslView(text)), "\": ", why));
  };
  const size_t slash = text.find('/');
  const auto base = SocketAddress::ParseHost(text.substr(0, slash), 0);
  if (!base.ok()) return bad("write it as 10.0.0.0/8, fd00::/8 or a numeric address");
  if (IsMappedV4(*base)) return bad("an IPv4-mapped network: write the IPv4 network itself");
  const uint32_t bits = base->is_v6() ? 128 : 32;
  uint32_t prefix = bits;
  if (slash != std::string_view::npos) {
    const auto parsed = ParseSmallNumber(text.substr(slash + 1), bits);
    if (!parsed) return bad(StrCat("the prefix is not a number from 0 to ", bits));
    prefix = *parsed;
  }
  const Network network = {*base, static_cast<int>(prefix)};
  // Most likely a slip, and either reading of it surprises somebody.
  if (const SocketAddress start = Masked(*base, network.prefix); start != *base) {
    return bad(
        StrCat("bits are set behind the prefix; the network is ", start.HostText(), "/", prefix));
  }
  return network;
}

absl::StatusOr<AllowList> AllowList::Parse(std::span<const std::string> networks) {
  AllowList out;
  for (const std::string& text : networks) {
    auto network = ParseNetwork(text);
    if (!network.ok()) return network.status();
    out.networks_.push_back(*network);
  }
  return out;
}

absl::StatusOr<AllowList> AllowList::Parse(std::initializer_list<std::string_view> networks) {
  return Parse(std::vector<std::string>(networks.begin(), networks.end()));
}

AllowList AllowList::Loopback() { return *Parse({"127.0.0.0/8", "::1"}); }

bool AllowList::Allows(const SocketAddress& address) const {
  const SocketAddress a = Unmapped(address);
  return std::ranges::any_of(networks_, [&](const Network& n) {
    return n.base.is_v6() == a.is_v6() && SamePrefix(n.base.bytes(), a.bytes(), n.prefix);
  });
}

absl::Status AllowList::CheckDial(const SocketAddress& address) const {
  if (absl::Status s = address.CheckDialable(); !s.ok()) return s;
  if (Allows(address)) return absl::OkStatus();
  return MakeError(
      Reason::kNotAllowed,
      StrCat("the gateway's address ", address.ToString(), " is not in the allow-list (",
             ToString(), "); add its network to `allow` if it is one of yours"));
}

std::string AllowList::ToString() const {
  if (networks_.empty()) return "nothing";
  return absl::StrJoin(networks_, ", ", [](std::string* out, const Network& n) {
    StrAppend(out, n.base.HostText(), "/", n.prefix);
  });
}

absl::StatusOr<SocketAddress> LocalAddressTowards(const SocketAddress& peer) {
  UniqueFd fd(::socket(peer.is_v6() ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) return SystemError(errno, "socket");
  SocketAddress target = peer;
  if (target.port() == 0) target.set_port(kDiscardPort);
  sockaddr_storage storage;
  socklen_t length = target.ToSockaddr(&storage);
  // Connecting a datagram socket only looks up the route.
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&storage), length) != 0) {
    return MakeError(Reason::kUnreachable,
                     StrCat("no route from here to ", peer.HostText(), ": ", std::strerror(errno)));
  }
  length = sizeof(storage);
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    return SystemError(errno, "getsockname");
  }
  auto local = SocketAddress::FromSockaddr(storage);
  if (local.ok()) local->set_port(0);
  return local;
}

}  // namespace tensorferry
