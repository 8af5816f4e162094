// Pulls that fetch by themselves: where the lease lies is asked for, its bytes and then their proof are
// read by UCX's GET.
#include <bit>
#include <cstring>
#include <utility>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/ucx/module/ucx_puller.h"
#include "tensorferry/wire/bytes.h"
#include "tensorferry/wire/ucx_location.h"

namespace tensorferry::engine {
namespace {

// UCX unpacks a key without being told where it ends. As UCX packs one: a set of memory domains, the
// type of the memory, and for each domain the size of its part and the part; what may follow is its own
// to tell by these.
bool LooksLikeRemoteKey(std::span<const std::byte> packed) {
  wire::Reader in(packed);
  const int domains = std::popcount(in.U64());
  const uint8_t memory = in.U8();
  for (int i = 0; i < domains; ++i) in.Take(in.U8());
  return in.ok() && memory == UCS_MEMORY_TYPE_HOST;
}
// Behind it, so that what follows is zeros to UCX.
constexpr size_t kKeyPadding = 4096;

}  // namespace

void UcxPuller::AskInstead(UcxPull& pull) {
  pull.request.kind = wire::TcpRequest::Kind::kRead;
  if (std::exchange(asked_instead_, true)) return;
  Log(options_.ucx.log, LogLevel::kInfo,
      StrCat("engine/ucx: the gateway at ", pull.addresses[pull.at].ToString(),
             " does not let readers fetch by themselves (its --ucx-get): asking it, and any other "
             "such, for the bytes instead"));
}

ucs_status_t UcxPuller::TakeLocation(Ask& ask, std::span<const std::byte> data) {
  Link& link = *ask.link;
  const UcxPull& pull = *ask.pull;
  const absl::StatusOr<wire::UcxLocation> location = wire::DecodeUcxLocation(data);
  if (!location.ok()) return Nonsense(link, StdView(location.status().message()));
  if (location->nbytes != pull.lease_bytes) {
    return Nonsense(link, StrCat("the location is of ", location->nbytes, " bytes, the lease of ",
                                 pull.lease_bytes));
  }
  absl::StatusOr<RemoteKey> key = KeyOf(link, location->remote_key);
  if (!key.ok()) return Nonsense(link, StdView(key.status().message()));
  ask.get = std::make_unique<Get>(Get{.address = location->address, .key = *std::move(key)});
  if (pull.into.empty()) {
    Prove(ask);
  } else {
    ask.receiving = 1;
    Fetch(ask, pull.into, location->address + pull.request.offset);
  }
  return UCS_OK;
}

// All leases of a gateway lie in one arena, so that all keys are mostly one.
absl::StatusOr<UcxPuller::RemoteKey> UcxPuller::KeyOf(Link& link,
                                                      std::span<const std::byte> packed) const {
  if (link.key && std::ranges::equal(link.packed_key, packed)) return link.key;
  if (!LooksLikeRemoteKey(packed)) {
    return MakeError(Reason::kProtocol, StrCat("a remote key of ", packed.size(),
                                               " bytes that is none, or of another UCX"));
  }
  std::vector<std::byte> padded(packed.begin(), packed.end());
  padded.resize(padded.size() + kKeyPadding);
  ucp_rkey_h key = nullptr;
  if (const ucs_status_t s = ucp_ep_rkey_unpack(link.endpoint, padded.data(), &key); s != UCS_OK) {
    return UcxError(Reason::kProtocol, "a remote key that UCX refuses", s);
  }
  link.key = RemoteKey(key, &ucp_rkey_destroy);
  link.packed_key.assign(packed.begin(), packed.end());
  return link.key;
}

// The caller has counted it in `receiving`. `ask` may be gone when it returns.
void UcxPuller::Fetch(Ask& ask, std::span<std::byte> into, uint64_t address) {
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  param.user_data = &ask;
  param.cb.send = &OnGot;
  void* const getting = ucp_get_nbx(ask.link->endpoint, into.data(), into.size(), address,
                                    ask.get->key.get(), &param);
  if (UCS_PTR_IS_ERR(getting)) Got(&ask, UCS_PTR_STATUS(getting));
}

// After the payload has arrived. A gateway that makes its memory another lease's takes both stamps
// first: as long as they are there, no byte that was read before is another's.
void UcxPuller::Prove(Ask& ask) {
  Get& get = *ask.get;
  get.proving = true;
  const auto stamps = std::span(get.stamps);
  const uint64_t header = get.address - wire::kFrameStampBytes;
  const uint64_t trailer = get.address + ask.pull->lease_bytes;
  ask.receiving = 2;
  Fetch(ask, stamps.first(wire::kFrameStampBytes), header);
  Fetch(ask, stamps.last(wire::kFrameStampBytes), trailer);
}

void UcxPuller::OnGot(void* request, ucs_status_t status, void* ask) {
  ucp_request_free(request);
  auto* got = static_cast<Ask*>(ask);
  got->puller->Got(got, status);
}

void UcxPuller::Got(Ask* ask, ucs_status_t status) {
  Get& get = *ask->get;
  if (get.status == UCS_OK) get.status = status;
  if (--ask->receiving > 0) return;
  const PullPtr pull = ask->pull;
  if (pull->verdict) return End(pull, *pull->verdict);
  if (ask->link == nullptr) {
    // Closed for a sibling's sake.
    Detach(*pull);
    again_.push_back(pull);
    return;
  }
  if (get.status != UCS_OK) {
    return End(pull, UcxError(Reason::kPeerClosed,
                              StrCat("ucx: ", Subject(*pull), ": fetching its ", pull->into.size(),
                                     " bytes failed"),
                              get.status));
  }
  if (!get.proving) return Prove(*ask);
  if (!wire::CheckFrame(get.stamps, 0, pull->request.lease.generation).ok()) {
    return End(pull, MakeError(Reason::kLeaseEnded, StrCat("ucx: ", Subject(*pull),
                                                           " ended while its ", pull->into.size(),
                                                           " bytes were fetched: they may be "
                                                           "another's by now")));
  }
  End(pull, absl::OkStatus());
}

}  // namespace tensorferry::engine
