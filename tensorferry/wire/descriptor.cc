#include "tensorferry/wire/descriptor.h"

#include <xxhash.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/host.h"
#include "tensorferry/base/text.h"
#include "tensorferry/wire/bytes.h"

namespace tensorferry::wire {
namespace {

constexpr size_t kPrefixBytes = kDescriptorMagic.size() + 1;  // what every version begins with
constexpr size_t kFixedBytes = 84;
constexpr size_t kCheckBytes = 4;
constexpr size_t kWayHeaderBytes = 4;

constexpr uint8_t kHasChecksum = 1;
constexpr uint8_t kWantsDone = 2;
constexpr uint8_t kAllFlags = kHasChecksum | kWantsDone;

constexpr uint8_t kLocalKind = 1;
constexpr uint8_t kGetKind = 4;
constexpr size_t kMaxWays = 8;
constexpr size_t kMaxAddresses = 8;
constexpr size_t kMaxSocketPath = 107;  // sun_path without its NUL
constexpr uint8_t kFamilyV4 = 4;
constexpr uint8_t kFamilyV6 = 6;

constexpr size_t kMaxWayBytes = kWayHeaderBytes + kMaxAddresses * (4 + 16);
static_assert(kMaxWayBytes >= kWayHeaderBytes + 16 + kMaxSocketPath);
static_assert(kFixedBytes + kMaxWays * kMaxWayBytes + kCheckBytes <= kMaxDescriptorBytes);

uint32_t Check(std::span<const std::byte> bytes) {
  return static_cast<uint32_t>(XXH3_64bits(bytes.data(), bytes.size()));
}

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return MakeError(Reason::kBadDescriptor, StrCat("descriptor: ", parts...));
}

std::string_view KindName(NetWay::Kind kind) { return kind == NetWay::Kind::kTcp ? "tcp" : "ucx"; }

struct WayName {
  std::string_view operator()(const LocalWay&) const { return "local"; }
  std::string_view operator()(const NetWay& way) const { return KindName(way.kind); }
  std::string_view operator()(const SmgDescriptor&) const { return "nixl"; }
  std::string_view operator()(const FileWay&) const { return "file"; }
};

absl::Status Validate(const LocalWay& way) {
  const std::string& path = way.socket_path;
  if (path.empty() || path.size() > kMaxSocketPath) {
    return Bad("a socket path of ", path.size(), " bytes, not 1 to ", kMaxSocketPath);
  }
  if (path.front() != '/' || path.find('\0') != std::string::npos) {
    return Bad("socket path \"", absl::CHexEscape(path), "\" is not absolute or holds a NUL");
  }
  return absl::OkStatus();
}

absl::Status Validate(const NetWay& way) {
  if (way.kind != NetWay::Kind::kTcp && way.kind != NetWay::Kind::kUcx) {
    return Bad("network way of unknown kind ", static_cast<int>(way.kind));
  }
  if (way.addresses.empty() || way.addresses.size() > kMaxAddresses) {
    return Bad(way.addresses.size(), " ", KindName(way.kind), " addresses, not 1 to ",
               kMaxAddresses);
  }
  if (way.one_sided && way.kind != NetWay::Kind::kUcx) {
    return Bad("a ", KindName(way.kind), " way says that readers may fetch by themselves");
  }
  for (const SocketAddress& address : way.addresses) {
    if (absl::Status s = address.CheckDialable(); !s.ok()) return Annotate(s, "descriptor");
  }
  return absl::OkStatus();
}

// What only stock handles name.
template <class Stock>
absl::Status Validate(const Stock&) {
  return Bad("holds a way of a stock handle, which has no place in it");
}

absl::Status Validate(const Way& way) {
  return std::visit([](const auto& w) { return Validate(w); }, way);
}

void EncodeBody(const LocalWay& way, Writer* to) {
  to->Bytes(way.boot_id);
  to->Text(way.socket_path);
}

void EncodeBody(const NetWay& way, Writer* to) {
  for (const SocketAddress& address : way.addresses) {
    to->U8(address.is_v6() ? kFamilyV6 : kFamilyV4);
    to->Zeros(1);
    to->U16(address.port());
    to->Bytes(address.bytes());
  }
}

// Never reached: Validate refuses them.
template <class Stock>
void EncodeBody(const Stock&, Writer*) {}
template <class Stock>
uint8_t KindNumber(const Stock&) {
  return 0;
}

bool IsOneSided(const Way& way) {
  const auto* net = std::get_if<NetWay>(&way);
  return net != nullptr && net->one_sided;
}

uint8_t KindNumber(const LocalWay&) { return kLocalKind; }
uint8_t KindNumber(const NetWay& way) { return static_cast<uint8_t>(way.kind); }

absl::StatusOr<Way> DecodeLocalWay(Reader body) {
  LocalWay way;
  way.boot_id = body.Array16();
  way.socket_path = AsText(body.Rest());
  if (!body.ok()) return Bad("the local way ends early");
  return way;
}

absl::StatusOr<Way> DecodeNetWay(NetWay::Kind kind, Reader body) {
  NetWay way = {.kind = kind, .addresses = {}};
  while (body.remaining() > 0) {
    const uint8_t family = body.U8();
    if (family != kFamilyV4 && family != kFamilyV6) {
      return Bad("address family ", family, " in a ", KindName(kind), " way");
    }
    if (!body.Zeros(1)) return Bad("padding of an address is not zero");
    const uint16_t port = body.U16();
    const auto bytes = body.Take(family == kFamilyV4 ? 4 : 16);
    if (!body.ok()) return Bad("an address of the ", KindName(kind), " way ends early");
    const auto* raw = reinterpret_cast<const uint8_t*>(bytes.data());
    auto address = SocketAddress::FromBytes({raw, bytes.size()}, port);
    if (!address.ok()) return address.status();
    way.addresses.push_back(*address);
  }
  return way;
}

// Adds nothing for a kind that is not known.
absl::Status DecodeWay(Reader* in, std::vector<Way>* ways) {
  const uint8_t kind = in->U8();
  const bool padded = in->Zeros(1);
  const uint16_t length = in->U16();
  const Reader body(in->Take(length));
  if (!in->ok()) return Bad("a way ends early");
  if (!padded) return Bad("padding of a way is not zero");
  absl::StatusOr<Way> way;
  switch (kind) {
    case kLocalKind:
      way = DecodeLocalWay(body);
      break;
    case static_cast<uint8_t>(NetWay::Kind::kTcp):
    case static_cast<uint8_t>(NetWay::Kind::kUcx):
      way = DecodeNetWay(static_cast<NetWay::Kind>(kind), body);
      break;
    case kGetKind: {
      auto* const net = ways->empty() ? nullptr : std::get_if<NetWay>(&ways->back());
      if (net == nullptr || net->one_sided) return Bad("a get way without a ucx way before it");
      if (length != 0) return Bad("a get way of ", length, " bytes, not 0");
      net->one_sided = true;
      return Validate(*net);
    }
    default:
      return absl::OkStatus();
  }
  if (!way.ok()) return way.status();
  if (absl::Status s = Validate(*way); !s.ok()) return s;
  ways->push_back(*std::move(way));
  return absl::OkStatus();
}

// That the bytes are a whole and unchanged descriptor of our version.
absl::Status CheckEnvelope(std::span<const std::byte> bytes) {
  const std::string_view start =
      AsText(bytes.first(std::min(bytes.size(), kDescriptorMagic.size())));
  if (!kDescriptorMagic.starts_with(start)) {
    return Bad("begins with \"", absl::CHexEscape(AbslView(start)), "\", not with ",
               kDescriptorMagic);
  }
  const auto too_short = [&](size_t least) {
    return MakeError(Reason::kTooShort,
                     StrCat("descriptor of ", bytes.size(), " bytes: it has at least ", least));
  };
  Reader in(bytes);
  in.Take(kDescriptorMagic.size());
  const uint8_t version = in.U8();
  if (!in.ok()) return too_short(kPrefixBytes);
  // Before anything else: a newer version may have moved all that follows, the check too.
  if (version > kDescriptorVersion) {
    return MakeError(Reason::kUnknownVersion,
                     StrCat("descriptor of version ", version, ", this side reads version ",
                            kDescriptorVersion, ": update it"));
  }
  if (version == 0) return Bad("version 0 does not exist");
  in.Take(1);
  const uint16_t total = in.U16();
  if (!in.ok()) return too_short(kFixedBytes + kCheckBytes);
  if (total < kFixedBytes + kCheckBytes || total > kMaxDescriptorBytes) {
    return Bad("says that it has ", total, " bytes, not ", kFixedBytes + kCheckBytes, " to ",
               kMaxDescriptorBytes);
  }
  if (bytes.size() < total) return too_short(total);
  if (bytes.size() > total) return Bad("has ", bytes.size(), " bytes and says ", total);
  const size_t checked = bytes.size() - kCheckBytes;
  if (LoadLe<uint32_t>(bytes.data() + checked) != Check(bytes.first(checked))) {
    return Bad("was changed on the way (its trailing check differs)");
  }
  return absl::OkStatus();
}

std::string Hex(std::span<const uint8_t> bytes) {
  return absl::BytesToHexString(AbslView(AsText(std::as_bytes(bytes))));
}

std::string WayText(const LocalWay& way) {
  return StrCat("local ", absl::CHexEscape(way.socket_path), " (boot ", BootIdText(way.boot_id),
                ")");
}

std::string WayText(const NetWay& way) {
  const auto address_text = [](std::string* out, const SocketAddress& address) {
    StrAppend(out, address.ToString());
  };
  return StrCat(KindName(way.kind), " ", absl::StrJoin(way.addresses, ", ", address_text),
                way.one_sided ? " (and get)" : "");
}

std::string WayText(const SmgDescriptor& way) {
  return StrCat("nixl ", absl::CHexEscape(way.host), " port ", way.port);
}

std::string WayText(const FileWay& way) {
  return StrCat("file ", absl::CHexEscape(way.name), " at offset ", way.offset);
}

}  // namespace

absl::StatusOr<std::string> EncodeDescriptor(const Descriptor& d) {
  if (d.lease.generation == 0) return Bad("generation 0 does not exist");
  const auto ways = d.ways.size() + static_cast<size_t>(std::ranges::count_if(d.ways, IsOneSided));
  if (ways == 0 || ways > kMaxWays) return Bad(ways, " ways, not 1 to ", kMaxWays);
  std::array<std::byte, kMaxDescriptorBytes> buffer;
  Writer to(buffer);
  to.Text(kDescriptorMagic);
  to.U8(kDescriptorVersion);
  to.U8(static_cast<uint8_t>((d.checksum ? kHasChecksum : 0) | (d.wants_done ? kWantsDone : 0)));
  std::byte* const total = buffer.data() + to.written();
  to.Zeros(2);
  to.U8(static_cast<uint8_t>(ways));
  to.Zeros(1);
  to.Bytes(d.instance);
  to.U64(d.lease.id);
  to.U64(d.lease.generation);
  to.Bytes(d.lease.token);
  to.I64(d.key);
  to.U64(d.nbytes);
  to.U64(d.checksum.value_or(0));
  for (const Way& way : d.ways) {
    if (absl::Status s = Validate(way); !s.ok()) return s;
    to.U8(std::visit([](const auto& w) { return KindNumber(w); }, way));
    to.Zeros(1);
    std::byte* const length = buffer.data() + to.written();
    to.Zeros(2);
    const size_t start = to.written();
    std::visit([&](const auto& w) { EncodeBody(w, &to); }, way);
    StoreLe(length, static_cast<uint16_t>(to.written() - start));
    if (IsOneSided(way)) {
      to.U8(kGetKind);
      to.Zeros(3);
    }
  }
  StoreLe(total, static_cast<uint16_t>(to.written() + kCheckBytes));
  to.U32(Check(std::span(buffer).first(to.written())));
  return std::string(AsText(std::span(buffer).first(to.written())));
}

absl::StatusOr<Descriptor> DecodeDescriptor(std::span<const std::byte> bytes) {
  if (absl::Status s = CheckEnvelope(bytes); !s.ok()) return s;
  Reader in(bytes.first(bytes.size() - kCheckBytes));
  in.Take(kPrefixBytes);
  const uint8_t flags = in.U8();
  in.Take(2);
  const uint8_t ways = in.U8();
  if (!in.Zeros(1)) return Bad("padding behind the number of ways is not zero");
  if ((flags & ~kAllFlags) != 0) return Bad("unknown flags 0x", absl::Hex(flags));
  if (ways == 0 || ways > kMaxWays) return Bad(ways, " ways, not 1 to ", kMaxWays);
  Descriptor d;
  d.instance = in.Array16();
  d.lease.id = in.U64();
  d.lease.generation = in.U64();
  d.lease.token = in.Array16();
  d.key = in.I64();
  d.nbytes = in.U64();
  const uint64_t checksum = in.U64();
  if (d.lease.generation == 0) return Bad("generation 0 does not exist");
  d.wants_done = (flags & kWantsDone) != 0;
  if ((flags & kHasChecksum) != 0) {
    d.checksum = checksum;
  } else if (checksum != 0) {
    return Bad("carries a checksum and says that it has none");
  }
  for (int i = 0; i < ways; ++i) {
    if (absl::Status s = DecodeWay(&in, &d.ways); !s.ok()) return s;
  }
  if (in.remaining() > 0) return Bad(in.remaining(), " bytes behind the last way");
  return d;
}

std::string_view TransportOf(const Way& way) { return std::visit(WayName(), way); }

std::string DescriptorText(const Descriptor& d) {
  std::string out = StrCat("tensorferry descriptor, version ", kDescriptorVersion,  //
                           "\ninstance    ", Hex(d.instance),                       //
                           "\nlease       ", d.lease.id,                            //
                           "\ngeneration  ", d.lease.generation,                    //
                           "\ntoken       (redacted)",                              //
                           "\nkey         ", d.key,                                 //
                           "\nnbytes      ", d.nbytes,                              //
                           "\nchecksum    ");
  if (d.checksum) {
    StrAppend(&out, "xxh3 ", absl::Hex(*d.checksum, absl::kZeroPad16));
  } else {
    StrAppend(&out, "none");
  }
  StrAppend(&out, "\nwants_done  ", d.wants_done ? "yes" : "no", "\n");
  for (const Way& way : d.ways) {
    StrAppend(&out, "way         ", std::visit([](const auto& w) { return WayText(w); }, way),
              "\n");
  }
  return out;
}

}  // namespace tensorferry::wire
