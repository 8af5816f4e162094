// Addresses: text to socket address and back, and allow-lists of networks.
//
//   auto a = SocketAddress::Parse("[::1]:18515");      // or "10.0.0.5:18515"
//   auto list = AllowList::Parse({"10.0.0.0/8", "::1"});
//   if (!list->Allows(*a)) ...
//
// Only numeric addresses: names are never resolved here, so nothing here blocks.
// Thread-safety: values; const calls from any thread.
#ifndef TENSORFERRY_BASE_NET_H_
#define TENSORFERRY_BASE_NET_H_

#include <sys/socket.h>

#include <array>
#include <compare>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/base/export.h"

namespace tensorferry {

// An IPv4 or IPv6 address with a port. IPv6 scopes ("%eth0") are refused: they mean nothing on
// another host.
class TENSORFERRY_EXPORT SocketAddress {
 public:
  SocketAddress() = default;
  static absl::StatusOr<SocketAddress> Parse(std::string_view text);
  // `host` without brackets: "10.0.0.5", "::1".
  static absl::StatusOr<SocketAddress> ParseHost(std::string_view host, uint16_t port);
  static absl::StatusOr<SocketAddress> FromSockaddr(const sockaddr_storage& storage);
  // `bytes` holds 4 or 16 bytes in network order.
  static absl::StatusOr<SocketAddress> FromBytes(std::span<const uint8_t> bytes, uint16_t port);

  bool is_v6() const { return v6_; }
  uint16_t port() const { return port_; }
  void set_port(uint16_t port) { port_ = port; }
  // 4 or 16 bytes, network order.
  std::span<const uint8_t> bytes() const { return {bytes_.data(), v6_ ? size_t{16} : size_t{4}}; }
  bool IsWildcard() const;
  bool IsLoopback() const;
  // OK for an address that another process can dial: not a wildcard, multicast, broadcast,
  // IPv4-mapped or IPv6 link-local one (that needs a scope), and a port that is not 0. Otherwise
  // kBadAddress, naming it.
  absl::Status CheckDialable() const;

  // "10.0.0.5:18515", "[::1]:18515"
  std::string ToString() const;
  // Without the port: "10.0.0.5", "::1"
  std::string HostText() const;
  socklen_t ToSockaddr(sockaddr_storage* out) const;

  friend bool operator==(const SocketAddress&, const SocketAddress&) = default;
  friend auto operator<=>(const SocketAddress&, const SocketAddress&) = default;

 private:
  bool v6_ = false;
  uint16_t port_ = 0;
  std::array<uint8_t, 16> bytes_ = {};
};

// Networks in CIDR form; a bare address means itself alone. An empty list allows nothing.
class TENSORFERRY_EXPORT AllowList {
 public:
  AllowList() = default;
  // kBadAddress, naming the entry: no such network, or bits set behind the prefix.
  static absl::StatusOr<AllowList> Parse(std::span<const std::string> networks);
  static absl::StatusOr<AllowList> Parse(std::initializer_list<std::string_view> networks);
  // 127.0.0.0/8 and ::1.
  static AllowList Loopback();

  // An IPv4-mapped IPv6 address counts as the IPv4 address that it reaches.
  bool Allows(const SocketAddress& address) const;
  // OK for an address that may be dialled: CheckDialable, and kNotAllowed when it is not on the list.
  absl::Status CheckDial(const SocketAddress& address) const;
  // "127.0.0.0/8, ::1/128"; "nothing" for an empty list.
  std::string ToString() const;

 private:
  struct Network {
    SocketAddress base;  // port 0
    int prefix = 0;
  };
  static absl::StatusOr<Network> ParseNetwork(std::string_view text);

  std::vector<Network> networks_;
};

// The local address (port 0) from which the kernel would reach `peer`. Sends nothing. kUnreachable
// when there is no route.
TENSORFERRY_EXPORT absl::StatusOr<SocketAddress> LocalAddressTowards(const SocketAddress& peer);

}  // namespace tensorferry

#endif  // TENSORFERRY_BASE_NET_H_
