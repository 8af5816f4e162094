#include "tensorferry/engine/ucx/module/ucx_puller.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry::engine {
namespace {

// How long the end of the engine waits for gateways to have heard of the last readers.
constexpr Duration kFarewell = std::chrono::milliseconds(500);
constexpr Duration kClosing = std::chrono::seconds(2);

// What is left, rounded up: the gateway must not give up before we do. 0 would mean no deadline.
uint32_t MillisecondsLeft(Instant deadline, Instant now) {
  if (deadline == kNever) return 0;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
  return static_cast<uint32_t>(std::clamp<int64_t>(ms, 1, std::numeric_limits<uint32_t>::max()));
}

}  // namespace

std::string UcxPuller::Subject(const UcxPull& pull) {
  return StrCat("lease ", pull.request.lease.id, " of the gateway at ",
                pull.addresses[pull.at].ToString());
}

absl::Status UcxPuller::TimedOut(const UcxPull& pull, bool connected, bool begun) {
  return MakeError(
      Reason::kTimedOut,
      StrCat("ucx: ", Subject(pull), ": the deadline passed ",
             connected ? (begun ? "in the middle of its " : "before the first of its ")
                       : "while connecting, with none of its ",
             pull.into.size(), " bytes; raise the timeout, or see whether it is stopped"));
}

absl::StatusOr<std::unique_ptr<UcxPuller>> UcxPuller::Create(const UcxPullOptions& options,
                                                             bool v6) {
  absl::StatusOr<std::unique_ptr<UcxContext>> context =
      UcxContext::Create(options.ucx, v6, /*listen=*/nullptr);
  if (!context.ok()) return context.status();
  std::unique_ptr<UcxPuller> puller(new UcxPuller(options, *std::move(context)));
  if (absl::Status s = puller->Start(); !s.ok()) return s;
  return puller;
}

absl::Status UcxPuller::Start() {
  if (absl::Status s = ReceiveMessages(loop_.worker(), kUcxAnswerId, &OnAnswer, this); !s.ok()) {
    return s;
  }
  return loop_.Start(this);
}

void UcxPuller::Begin(PullPtr pull) {
  loop_.Post([this, pull = std::move(pull)] {
    pulls_.insert(pull);
    if (options_.ucx.get != UcxGet::kOff) {
      if (pull->offers_get) {
        pull->request.kind = wire::TcpRequest::Kind::kLocate;
      } else {
        AskInstead(*pull);
      }
    }
    ChooseAddress(*pull);
    Issue(pull, RealClock().Now());
  });
}

void UcxPuller::Abandon(const PullPtr& pull) {
  loop_.Post([this, pull] {
    if (!pull->done.load()) GiveUp(pull, MakeError(Reason::kCancelled, "the pull was given up"));
  });
  pull->done.wait(false);
}

void UcxPuller::Acknowledge(PullPtr pull) {
  loop_.Post([this, pull = std::move(pull)] {
    const auto found = gateways_.find(pull->addresses[pull->at]);
    if (found == gateways_.end() || !found->second.link || found->second.link->failed) return;
    auto ask = std::make_unique<Ask>(Ask{.puller = this, .number = next_number_++, .done = true});
    ask->header = wire::EncodeTcpRequest({.kind = wire::TcpRequest::Kind::kDone,
                                          .request = ask->number,
                                          .instance = pull->request.instance,
                                          .lease = pull->request.lease});
    ++acknowledgements_;
    Send(*found->second.link, std::move(ask));
  });
}

// What is connected first: any address is of the same gateway.
void UcxPuller::ChooseAddress(UcxPull& pull) const {
  std::stable_partition(
      pull.addresses.begin(), pull.addresses.end(), [this](const SocketAddress& address) {
        const auto found = gateways_.find(address);
        return found != gateways_.end() && found->second.link && found->second.link->connected;
      });
}

void UcxPuller::Issue(const PullPtr& pull, Instant now) {
  if (now >= pull->deadline) return End(pull, TimedOut(*pull, /*connected=*/true, false));
  const absl::StatusOr<Link*> to = LinkTo(pull->addresses[pull->at], now);
  if (!to.ok()) return AddressFailed(pull, to.status());
  Link& link = **to;
  pull->fresh = !link.connected;
  pull->heard_before = link.heard;
  if (pull->move_on == kNever && pull->at + 1 < pull->addresses.size() &&
      pull->deadline != kNever) {
    // An address that swallows packets must leave time for the next.
    pull->move_on = now + (pull->deadline - now) / 2;
  }
  LookAt(*pull,
         pull->fresh ? std::min({pull->deadline, link.gives_up, pull->move_on}) : pull->deadline);
  auto ask = std::make_unique<Ask>(Ask{.puller = this, .number = next_number_++, .pull = pull});
  wire::TcpRequest request = pull->request;
  request.request = ask->number;
  request.deadline_ms = MillisecondsLeft(pull->deadline, now);
  ask->header = wire::EncodeTcpRequest(request);
  pull->number = ask->number;
  Send(link, std::move(ask));
}

absl::StatusOr<UcxPuller::Link*> UcxPuller::LinkTo(const SocketAddress& address, Instant now) {
  Gateway& gateway = GatewayAt(address, now);
  if (gateway.link && !gateway.link->failed) return gateway.link.get();
  if (gateway.link) LinkFailed(*gateway.link, now);
  if (now < gateway.retry_at) {
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(gateway.retry_at - now).count();
    return MakeError(
        ReasonOf(gateway.failure).value_or(Reason::kUnreachable),
        StrCat(StdView(gateway.failure.message()), "; not tried again for ", ms, " ms"));
  }
  absl::StatusOr<std::unique_ptr<Link>> link = Connect(address, now);
  if (!link.ok()) return link.status();
  gateway.link = *std::move(link);
  return gateway.link.get();
}

absl::StatusOr<std::unique_ptr<UcxPuller::Link>> UcxPuller::Connect(const SocketAddress& address,
                                                                    Instant now) {
  auto link =
      std::make_unique<Link>(Link{.puller = this,
                                  .address = address,
                                  .gives_up = SaturatingAdd(now, options_.connect_timeout)});
  sockaddr_storage storage = {};
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr.addrlen = address.ToSockaddr(&storage);
  params.sockaddr.addr = reinterpret_cast<const sockaddr*>(&storage);
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {.cb = &OnFailure, .arg = link.get()};
  const ucs_status_t s = ucp_ep_create(loop_.worker(), &params, &link->endpoint);
  if (s != UCS_OK) {
    return UcxError(Reason::kUnreachable,
                    StrCat("ucx: no connection to the gateway at ", address.ToString()), s);
  }
  links_.emplace(link->endpoint, link.get());
  return link;
}

UcxPuller::Gateway& UcxPuller::GatewayAt(const SocketAddress& address, Instant now) {
  if (const auto found = gateways_.find(address); found != gateways_.end()) return found->second;
  // A new gateway is rare, and often an old one on a new port: time to forget those that are gone.
  std::erase_if(gateways_, [now](const auto& entry) {
    return entry.second.link == nullptr && now >= entry.second.retry_at;
  });
  return gateways_[address];
}

void UcxPuller::Send(Link& link, std::unique_ptr<Ask> ask) {
  ucp_request_param_t param = {};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.user_data = ask.get();
  param.cb.send = &OnSent;
  param.flags = UCP_AM_SEND_FLAG_REPLY | UCP_AM_SEND_FLAG_EAGER;
  ask->link = &link;
  Ask* const asked = ask.get();
  link.asks.insert(asked);
  asks_.emplace(asked->number, std::move(ask));
  void* const sent = ucp_am_send_nbx(link.endpoint, kUcxRequestId, asked->header.data(),
                                     asked->header.size(), nullptr, 0, &param);
  if (UCS_PTR_IS_ERR(sent)) {
    OnFailure(&link, link.endpoint, UCS_PTR_STATUS(sent));
  } else if (sent == nullptr) {
    Connected(link);
  } else {
    asked->sending = true;
  }
}

void UcxPuller::OnSent(void* request, ucs_status_t status, void* ask) {
  ucp_request_free(request);
  auto* sent = static_cast<Ask*>(ask);
  sent->puller->Sent(sent, status);
}

void UcxPuller::Sent(Ask* ask, ucs_status_t status) {
  ask->sending = false;
  if (status == UCS_OK && ask->link != nullptr) Connected(*ask->link);
  Settle(ask);
}

void UcxPuller::Connected(Link& link) {
  if (!std::exchange(link.connected, true)) CountHandshake(absl::OkStatus());
}

void UcxPuller::CountHandshake(const absl::Status& result) {
  Count(options_.ucx.metrics, Metric::kHandshakes,
        {ProcessEnd::kWorker, LabelValue::Transport("ucx"), result});
}

void UcxPuller::OnFailure(void* link, ucp_ep_h, ucs_status_t status) {
  // Closed at the next tick: UCX is in the middle of its own bookkeeping here.
  auto* failed = static_cast<Link*>(link);
  if (!failed->failed) failed->failed = status;
  failed->puller->some_failed_ = true;
}

ucs_status_t UcxPuller::OnAnswer(void* self, const void* header, size_t header_length, void* data,
                                 size_t length, const ucp_am_recv_param_t* param) {
  auto* puller = static_cast<UcxPuller*>(self);
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) == 0) return UCS_OK;
  const auto found = puller->links_.find(param->reply_ep);
  if (found == puller->links_.end() || found->second->failed) return UCS_OK;
  return puller->TakeAnswer(*found->second, {static_cast<const std::byte*>(header), header_length},
                            data, length, (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0);
}

// UCS_OK: UCX may drop the data, and tell the sender of a rendezvous that it is over.
ucs_status_t UcxPuller::TakeAnswer(Link& link, std::span<const std::byte> header, void* data,
                                   size_t length, bool rendezvous) {
  Connected(link);
  ++link.heard;
  if (header.size() != wire::kTcpAnswerBytes) {
    return Nonsense(link, StrCat("an answer with a header of ", header.size(), " bytes"));
  }
  const absl::StatusOr<wire::TcpAnswer> answer =
      wire::DecodeTcpAnswer(header.first<wire::kTcpAnswerBytes>());
  if (!answer.ok()) return Nonsense(link, StdView(answer.status().message()));
  const auto found = asks_.find(answer->request);
  // One that was given up meanwhile, or another gateway's.
  if (found == asks_.end() || found->second->link != &link) return UCS_OK;
  Ask& ask = *found->second;
  if (ask.done) {
    ask.done = false;
    --acknowledgements_;
    Settle(&ask);
    return UCS_OK;
  }
  if (!ask.pull || ask.receiving > 0) return UCS_OK;
  const PullPtr pull = ask.pull;
  if (answer->status != 0) {
    TakeRefusal(pull, answer->status);
    return UCS_OK;
  }
  if (pull->request.kind == wire::TcpRequest::Kind::kLocate) {
    if (rendezvous || answer->length != length) {
      return Nonsense(link, StrCat("a location says ", answer->length, " bytes and has ", length));
    }
    return TakeLocation(ask, {static_cast<const std::byte*>(data), length});
  }
  if (answer->length != length || length != pull->into.size()) {
    return Nonsense(link, StrCat("the answer says ", answer->length, " bytes and has ", length,
                                 ", not ", pull->into.size()));
  }
  return TakePayload(ask, data, rendezvous);
}

ucs_status_t UcxPuller::Nonsense(Link& link, std::string_view what) {
  for (Ask* ask : link.asks) {
    if (!ask->pull || ask->receiving > 0 || ask->pull->verdict) continue;
    ask->pull->verdict =
        MakeError(Reason::kProtocol, StrCat("ucx: ", Subject(*ask->pull), ": ", what));
  }
  OnFailure(&link, link.endpoint, UCS_ERR_INVALID_PARAM);
  return UCS_OK;
}

ucs_status_t UcxPuller::TakePayload(Ask& ask, void* data, bool rendezvous) {
  const PullPtr pull = ask.pull;
  if (!rendezvous) {
    if (!pull->into.empty()) std::memcpy(pull->into.data(), data, pull->into.size());
    End(pull, absl::OkStatus());
    return UCS_OK;
  }
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  param.user_data = &ask;
  param.cb.recv_am = &OnReceived;
  ask.receiving = 1;
  void* const receiving =
      ucp_am_recv_data_nbx(loop_.worker(), data, pull->into.data(), pull->into.size(), &param);
  if (UCS_PTR_IS_ERR(receiving)) Received(&ask, UCS_PTR_STATUS(receiving));
  return UCS_INPROGRESS;  // the descriptor is UCX's again
}

void UcxPuller::OnReceived(void* request, ucs_status_t status, size_t, void* ask) {
  ucp_request_free(request);
  auto* received = static_cast<Ask*>(ask);
  received->puller->Received(received, status);
}

void UcxPuller::Received(Ask* ask, ucs_status_t status) {
  ask->receiving = 0;
  const PullPtr pull = ask->pull;
  if (pull->verdict) {
    End(pull, *pull->verdict);
  } else if (status == UCS_OK) {
    End(pull, absl::OkStatus());
  } else if (ask->link == nullptr) {
    // For a sibling's sake.
    Detach(*pull);
    again_.push_back(pull);
  } else {
    End(pull, UcxError(Reason::kPeerClosed,
                       StrCat("ucx: ", Subject(*pull), ": the gateway ended the connection in the ",
                              "middle of ", pull->into.size(), " bytes"),
                       status));
  }
}

void UcxPuller::TakeRefusal(const PullPtr& pull, uint16_t status) {
  const std::optional<Reason> reason = ReasonFromNumber(status);
  const absl::Status refusal = MakeError(
      reason.value_or(Reason::kProtocol),
      StrCat("ucx: ", Subject(*pull), ", ", pull->into.size(), " bytes from ", pull->request.offset,
             ": the gateway refused: ", reason ? ReasonMeaning(*reason) : "a reason unknown here",
             " (", status, ")"));
  if (reason == Reason::kWrongInstance) {
    return AddressFailed(pull, refusal);
  }
  if (reason == Reason::kLaneOff && pull->request.kind == wire::TcpRequest::Kind::kLocate) {
    AskInstead(*pull);
    Detach(*pull);
    again_.push_back(pull);
    return;
  }
  End(pull, refusal);
}

Instant UcxPuller::Tick(Instant now) {
  take_down_.Reap();
  while (std::exchange(some_failed_, false)) {
    std::vector<Link*> failed;
    for (const auto& [endpoint, link] : links_) {
      if (link->failed) failed.push_back(link);
    }
    for (Link* link : failed) LinkFailed(*link, now);
  }
  while (!again_.empty()) {
    for (const PullPtr& pull : std::exchange(again_, {})) {
      if (!pull->done.load()) Issue(pull, now);
    }
  }
  if (now >= next_look_) {
    next_look_ = kNever;
    std::vector<PullPtr> due;
    for (const PullPtr& pull : pulls_) {
      if (now >= pull->attention) {
        due.push_back(pull);
      } else {
        next_look_ = std::min(next_look_, pull->attention);
      }
    }
    for (const PullPtr& pull : due) {
      if (!pull->done.load()) Attend(pull, now);
    }
  }
  if (some_failed_ || !again_.empty()) return now;
  return take_down_.Wake(now, leftover_ > 0, next_look_);
}

void UcxPuller::Attend(const PullPtr& pull, Instant now) {
  pull->attention = kNever;
  if (pull->verdict) return;  // it ends as soon as UCX has let go
  Ask* const ask = AskOf(*pull);
  Link* const link = ask == nullptr ? nullptr : ask->link;
  if (now >= pull->deadline) {
    const bool connected = link == nullptr || link->connected;
    return GiveUp(pull, TimedOut(*pull, connected, ask != nullptr && ask->receiving > 0));
  }
  if (link == nullptr || link->connected) return LookAt(*pull, pull->deadline);
  if (now >= link->gives_up) {
    LookAt(*pull, pull->deadline);
    return OnFailure(link, link->endpoint, UCS_ERR_TIMED_OUT);
  }
  if (now < pull->move_on) {
    return LookAt(*pull, std::min({pull->deadline, link->gives_up, pull->move_on}));
  }
  AddressFailed(pull,
                MakeError(Reason::kUnreachable, StrCat("ucx: no connection to the gateway at ",
                                                       link->address.ToString(), " yet")));
}

void UcxPuller::GiveUp(const PullPtr& pull, const absl::Status& why) {
  if (pull->verdict) return;
  Ask* const ask = AskOf(*pull);
  if (ask != nullptr && ask->receiving > 0) {
    pull->verdict = why;
    // Null when it was closed for a sibling's sake already.
    if (ask->link != nullptr) Break(*ask->link, pull.get());
    return;
  }
  // Silence from the first byte on: the endpoint may lead nowhere.
  Link* const link = ask == nullptr ? nullptr : ask->link;
  const bool silent = link != nullptr && link->connected && link->heard == pull->heard_before;
  End(pull, why);
  if (silent) Break(*link, nullptr);
}

void UcxPuller::LinkFailed(Link& link, Instant now) {
  const ucs_status_t status = *link.failed;
  Gateway& gateway = gateways_.find(link.address)->second;
  const bool rejected = status == UCS_ERR_REJECTED;
  const bool connected = link.connected;
  const absl::Status why =
      connected ? UcxError(Reason::kPeerClosed,
                           StrCat("ucx: the gateway at ", link.address.ToString(),
                                  " ended the connection"),
                           status)
                : UcxError(rejected ? Reason::kBusy : Reason::kUnreachable,
                           StrCat("ucx: no connection to the gateway at ", link.address.ToString()),
                           status);
  if (!connected) CountHandshake(why);
  if (!connected && !rejected) {
    gateway.backoff = std::clamp(2 * gateway.backoff, options_.backoff_min, options_.backoff_max);
    gateway.retry_at = SaturatingAdd(now, gateway.backoff);
    gateway.failure = why;
    Log(options_.ucx.log, LogLevel::kWarning,
        StrCat("engine/", StdView(why.message()), "; next try in ",
               std::chrono::ceil<std::chrono::milliseconds>(gateway.backoff).count(), " ms"));
  }
  if (connected) gateway.backoff = {};
  std::vector<PullPtr> lost;
  for (Ask* ask : link.asks) {
    if (!ask->pull) continue;
    if (ask->receiving == 0) {
      lost.push_back(ask->pull);
    } else if (!ask->pull->verdict) {
      ask->pull->verdict = UcxError(
          Reason::kPeerClosed,
          StrCat("ucx: ", Subject(*ask->pull), ": the gateway ended the connection in the middle ",
                 "of ", ask->pull->into.size(), " bytes"),
          status);
    }
  }
  Shut(link);
  for (const PullPtr& pull : lost) {
    Detach(*pull);
    if (pull->verdict) {
      AddressFailed(pull, *std::exchange(pull->verdict, std::nullopt));
    } else if (connected && !pull->fresh) {
      // It lay idle before: the gateway may have been restarted since.
      again_.push_back(pull);
    } else {
      AddressFailed(pull, why);
    }
  }
}

void UcxPuller::Break(Link& link, const UcxPull* except) {
  std::vector<PullPtr> siblings;
  for (Ask* ask : link.asks) {
    if (ask->pull && ask->pull.get() != except && ask->receiving == 0)
      siblings.push_back(ask->pull);
  }
  Shut(link);
  for (const PullPtr& pull : siblings) {
    Detach(*pull);
    again_.push_back(pull);
  }
}

void UcxPuller::Shut(Link& link) {
  const ucp_ep_h endpoint = link.endpoint;
  for (Ask* ask : std::exchange(link.asks, {})) {
    ask->link = nullptr;
    ++leftover_;
    if (ask->done) {
      ask->done = false;
      --acknowledgements_;
    }
    if (!ask->pull) Settle(ask);
  }
  links_.erase(endpoint);
  const auto found = gateways_.find(link.address);
  const std::unique_ptr<Link> gone = std::move(found->second.link);
  take_down_.Close(endpoint);
}

void UcxPuller::AddressFailed(const PullPtr& pull, const absl::Status& why) {
  Detach(*pull);
  // What a gateway said tells more than that another address is silent.
  if (pull->failure.ok() || ReasonOf(pull->failure) == Reason::kUnreachable) pull->failure = why;
  if (pull->at + 1 == pull->addresses.size()) return End(pull, pull->failure);
  ++pull->at;
  pull->move_on = kNever;
  again_.push_back(pull);
}

UcxPuller::Ask* UcxPuller::AskOf(const UcxPull& pull) const {
  const auto found = asks_.find(pull.number);
  return found == asks_.end() ? nullptr : found->second.get();
}

// Nobody waits for its answer any more.
void UcxPuller::Detach(UcxPull& pull) {
  Ask* const ask = AskOf(pull);
  pull.number = 0;
  if (ask == nullptr) return;
  ask->pull.reset();
  Settle(ask);
}

void UcxPuller::Settle(Ask* ask) {
  if (ask->sending || ask->receiving > 0 || ask->pull || ask->done) return;
  if (ask->link != nullptr) {
    ask->link->asks.erase(ask);
  } else {
    --leftover_;
  }
  asks_.erase(ask->number);
}

void UcxPuller::End(const PullPtr& pull, const absl::Status& status) {
  // `pull` may be the ask's own, which goes with it.
  PullPtr ended = pull;
  Detach(*ended);
  pulls_.erase(ended);
  ended->result = status;
  ended->done.store(true);
  ended->done.notify_all();
  (void)::eventfd_write(ended->event.get(), 1);
  ended.reset();
}

void UcxPuller::LookAt(UcxPull& pull, Instant when) {
  pull.attention = when;
  next_look_ = std::min(next_look_, when);
}

void UcxPuller::Finish() {
  (void)loop_.ProgressUntil(
      [this] {
        (void)Tick(RealClock().Now());
        return acknowledgements_ == 0;
      },
      kFarewell);
  // No op is left, and so no pull: ops keep this alive.
  while (!links_.empty()) Shut(*links_.begin()->second);
  (void)loop_.ProgressUntil(
      [this] {
        (void)Tick(RealClock().Now());
        return asks_.empty() && take_down_.empty();
      },
      kClosing);
  // Keys belong to UCX's worker, which goes next.
  for (const auto& [number, ask] : asks_) ask->get.reset();
}

}  // namespace tensorferry::engine
