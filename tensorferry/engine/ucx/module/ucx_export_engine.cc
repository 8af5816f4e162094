#include "tensorferry/engine/ucx/module/ucx_export_engine.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/net_way.h"
#include "tensorferry/engine/ucx/module/ucx_loop.h"
#include "tensorferry/wire/tcp_messages.h"
#include "tensorferry/wire/ucx_location.h"

namespace tensorferry::engine {
namespace {

// A reader whose time is up gives up by itself, without disturbing its other pulls: it goes first.
constexpr Duration kGrace = std::chrono::seconds(1);
constexpr Duration kClosing = std::chrono::seconds(2);

class Engine final : public UcxExportEngine, private UcxLoop::Handler {
 public:
  Engine(const UcxExportOptions& options, std::unique_ptr<UcxContext> context)
      : options_(options), loop_(std::move(context), options.ucx.log) {}

  ~Engine() override {
    loop_.Stop();
    const UcxLogScope log(&options_.ucx.log);
    // Where the loop has never run.
    if (listener_ != nullptr) ucp_listener_destroy(listener_);
    if (arena_ != nullptr) (void)ucp_mem_unmap(loop_.context(), arena_);
  }

  absl::Status Listen();

  std::string_view transport() const override { return "ucx"; }
  wire::Way way() const override {
    return wire::NetWay{wire::NetWay::Kind::kUcx, advertised_, one_sided()};
  }
  SocketAddress address() const override { return bound_; }
  bool preferred() const override { return !options_.ucx.rdma_devices.empty(); }
  std::string DescribeReaders() override;
  bool one_sided() const override { return options_.ucx.get != UcxGet::kOff; }

  absl::Status Start(const ArenaView& arena, LeaseSource* leases) override {
    leases_ = leases;
    instance_ = arena.instance;
    if (one_sided()) {
      if (absl::Status s = Register(arena); !s.ok()) return s;
    }
    return loop_.Start(this);
  }

  // As with tcp: a lease's readability is LeaseSource::Open's answer, and its pins are the
  // exporter's to wait for.
  void Publish(const PublishedLease&) override {}
  bool Retire(const wire::LeaseRef&) override { return true; }

 private:
  struct Answer;
  struct Reader {
    Engine* engine = nullptr;
    ucp_ep_h endpoint = nullptr;
    std::string peer = {};
    bool failed = false;
    std::list<Answer*> answers = {};
  };
  // Under way: UCX reads the header and the payload until the callback.
  struct Answer {
    Engine* engine = nullptr;
    Reader* reader = nullptr;  // null once it has gone
    std::list<Answer*>::iterator place = {};
    PinnedBytes payload = {};
    std::vector<std::byte> location = {};  // instead of a payload
    std::array<std::byte, wire::kTcpAnswerBytes> header = {};
    uint64_t lease = 0;
    std::span<const std::byte> data() const {
      return location.empty() ? payload.bytes() : std::span<const std::byte>(location);
    }
    Instant cut_off = kNever;
  };

  static void OnConnection(ucp_conn_request_h request, void* self) {
    static_cast<Engine*>(self)->Accept(request);
  }
  static void OnFailure(void* reader, ucp_ep_h, ucs_status_t) {
    // Closed at the next tick: UCX is in the middle of its own bookkeeping here.
    auto* failed = static_cast<Reader*>(reader);
    failed->failed = true;
    failed->engine->some_failed_ = true;
  }
  static ucs_status_t OnRequest(void* self, const void* header, size_t header_length, void*, size_t,
                                const ucp_am_recv_param_t* param) {
    const bool named = (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0;
    static_cast<Engine*>(self)->TakeRequest({static_cast<const std::byte*>(header), header_length},
                                            named ? param->reply_ep : nullptr);
    return UCS_OK;
  }
  static void OnSent(void* request, ucs_status_t, void* answer) {
    ucp_request_free(request);
    auto* sent = static_cast<Answer*>(answer);
    sent->engine->Forget(sent);
  }

  absl::Status Register(const ArenaView& arena);
  Instant Tick(Instant now) override;
  void Finish() override;
  void Accept(ucp_conn_request_h request);
  void TakeRequest(std::span<const std::byte> header, ucp_ep_h endpoint);
  void Reply(Reader& reader, const wire::TcpRequest& request);
  absl::Status Read(const wire::TcpRequest& request, Answer* answer);
  absl::Status Locate(const wire::TcpRequest& request, Answer* answer);
  void Send(Reader& reader, std::unique_ptr<Answer> answer);
  void Forget(Answer* answer);
  void Close(Reader& reader);
  void ReportBadPeer(const Reader& reader, std::string_view what);
  void CountHandshake(LabelValue result) {
    Count(options_.ucx.metrics, Metric::kHandshakes,
          {ProcessEnd::kGateway, LabelValue::Transport("ucx"), result});
  }

  const UcxExportOptions options_;
  SocketAddress bound_;
  std::vector<SocketAddress> advertised_;
  LeaseSource* leases_ = nullptr;
  wire::InstanceId instance_ = {};
  // Of a one-sided one.
  ucp_mem_h arena_ = nullptr;
  std::vector<std::byte> remote_key_;

  // The loop's own.
  ucp_listener_h listener_ = nullptr;
  std::unordered_map<ucp_ep_h, std::unique_ptr<Reader>> readers_;
  size_t answers_ = 0;
  size_t leftover_ = 0;  // of them: whose reader has gone
  bool some_failed_ = false;
  Instant next_cut_off_ = kNever;
  UcxTakeDown take_down_;
  uint64_t bad_peers_ = 0;
  UcxLoop loop_;
};

absl::Status Engine::Listen() {
  const UcxLogScope log(&options_.ucx.log);
  if (absl::Status s = ReceiveMessages(loop_.worker(), kUcxRequestId, &OnRequest, this); !s.ok()) {
    return s;
  }
  sockaddr_storage storage = {};
  ucp_listener_params_t params = {};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr.addrlen = options_.listen.ToSockaddr(&storage);
  params.sockaddr.addr = reinterpret_cast<const sockaddr*>(&storage);
  params.conn_handler = {.cb = &OnConnection, .arg = this};
  const std::string text = options_.listen.ToString();
  const ucs_status_t listening = ucp_listener_create(loop_.worker(), &params, &listener_);
  if (listening != UCS_OK) {
    listener_ = nullptr;
    if (listening == UCS_ERR_BUSY) {
      return MakeError(Reason::kAddressInUse,
                       StrCat("cannot listen on ", text, " (port 0 picks a free one)"));
    }
    return UcxError(Reason::kBadAddress, StrCat("ucx: cannot listen on ", text), listening);
  }
  ucp_listener_attr_t attributes = {};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  if (const ucs_status_t s = ucp_listener_query(listener_, &attributes); s != UCS_OK) {
    return UcxError(Reason::kSystem, StrCat("ucx: which port of ", text), s);
  }
  absl::StatusOr<SocketAddress> bound = SocketAddress::FromSockaddr(attributes.sockaddr);
  if (!bound.ok()) return bound.status();
  bound_ = *bound;

  auto advertised = AdvertisedAddresses(options_.advertise, bound_);
  if (!advertised.ok()) return advertised.status();
  advertised_ = *std::move(advertised);
  return absl::OkStatus();
}

// For reading alone, where the transport can tell.
absl::Status Engine::Register(const ArenaView& arena) {
  const UcxLogScope log(&options_.ucx.log);
  const auto off = [&](ucs_status_t status) {
    return UcxError(Reason::kLaneOff,
                    StrCat("ucx: cannot register the arena of ", arena.size,
                           " bytes for one-sided readers (see ulimit -l)"),
                    status);
  };
  ucp_mem_map_params_t params = {};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_PROT;
  params.address = arena.data;
  params.length = arena.size;
  params.prot = UCP_MEM_MAP_PROT_LOCAL_READ | UCP_MEM_MAP_PROT_REMOTE_READ;
  if (const ucs_status_t s = ucp_mem_map(loop_.context(), &params, &arena_); s != UCS_OK) {
    arena_ = nullptr;
    return off(s);
  }
  void* packed = nullptr;
  size_t length = 0;
  if (const ucs_status_t s = ucp_rkey_pack(loop_.context(), arena_, &packed, &length);
      s != UCS_OK) {
    return off(s);
  }
  const auto* bytes = static_cast<const std::byte*>(packed);
  remote_key_.assign(bytes, bytes + length);
  ucp_rkey_buffer_release(packed);
  if (length > wire::kMaxRemoteKeyBytes) return off(UCS_ERR_EXCEEDS_LIMIT);
  return absl::OkStatus();
}

void Engine::Accept(ucp_conn_request_h request) {
  if (readers_.size() >= options_.max_readers) {
    (void)ucp_listener_reject(listener_, request);
    CountHandshake(Reason::kBusy);
    return;
  }
  auto reader = std::make_unique<Reader>(Reader{.engine = this});
  ucp_conn_request_attr_t attributes = {};
  attributes.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR;
  if (ucp_conn_request_query(request, &attributes) == UCS_OK) {
    reader->peer =
        SocketAddress::FromSockaddr(attributes.client_address).value_or(SocketAddress()).ToString();
  }
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.conn_request = request;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {.cb = &OnFailure, .arg = reader.get()};
  if (const ucs_status_t s = ucp_ep_create(loop_.worker(), &params, &reader->endpoint);
      s != UCS_OK) {
    // The reader has gone again, or speaks no UCX.
    ReportBadPeer(*reader, ucs_status_string(s));
    CountHandshake(Reason::kPeerClosed);
    return;
  }
  CountHandshake(absl::OkStatus());
  const ucp_ep_h endpoint = reader->endpoint;
  readers_.emplace(endpoint, std::move(reader));
}

void Engine::TakeRequest(std::span<const std::byte> header, ucp_ep_h endpoint) {
  // Who wants no answer, and who has been cut off, gets none.
  const auto found = readers_.find(endpoint);
  if (found == readers_.end() || found->second->failed) return;
  Reader& reader = *found->second;
  absl::StatusOr<wire::TcpRequest> request =
      MakeError(Reason::kProtocol,
                StrCat("a request of ", header.size(), " bytes, not ", wire::kTcpRequestBytes));
  if (header.size() == wire::kTcpRequestBytes) {
    request = wire::DecodeTcpRequest(header.first<wire::kTcpRequestBytes>());
  }
  if (!request.ok()) {
    ReportBadPeer(reader, StdView(request.status().message()));
    OnFailure(&reader, endpoint, UCS_ERR_INVALID_PARAM);
    return;
  }
  switch (request->kind) {
    case wire::TcpRequest::Kind::kDone: {
      if (request->instance == instance_) leases_->Done(request->lease);
      // Answered, so that a worker that ends right after it knows that it was heard.
      auto answer = std::make_unique<Answer>(Answer{.engine = this});
      answer->header = wire::EncodeTcpAnswer({.request = request->request});
      answer->lease = request->lease.id;
      answer->cut_off = SaturatingAdd(RealClock().Now(), options_.answer_timeout);
      return Send(reader, std::move(answer));
    }
    case wire::TcpRequest::Kind::kRead:
    case wire::TcpRequest::Kind::kLocate:
      return Reply(reader, *request);
  }
}

void Engine::Reply(Reader& reader, const wire::TcpRequest& request) {
  auto answer = std::make_unique<Answer>(Answer{.engine = this});
  wire::TcpAnswer header = {.request = request.request};
  std::optional<Reason> refusal;
  if (request.instance != instance_) {
    refusal = Reason::kWrongInstance;
  } else {
    const absl::Status status = request.kind == wire::TcpRequest::Kind::kRead
                                    ? Read(request, answer.get())
                                    : Locate(request, answer.get());
    if (!status.ok()) refusal = ReasonOf(status).value_or(Reason::kSystem);
  }
  if (refusal) header.status = static_cast<uint16_t>(*refusal);
  header.length = answer->data().size();
  answer->header = wire::EncodeTcpAnswer(header);
  answer->lease = request.lease.id;
  const Duration time = request.deadline_ms == 0
                            ? options_.answer_timeout
                            : std::chrono::milliseconds(request.deadline_ms) + kGrace;
  answer->cut_off = SaturatingAdd(RealClock().Now(), time);
  Send(reader, std::move(answer));
}

absl::Status Engine::Read(const wire::TcpRequest& request, Answer* answer) {
  absl::StatusOr<PinnedBytes> opened = leases_->Open(request.lease, request.offset, request.length);
  if (!opened.ok()) return opened.status();
  answer->payload = *std::move(opened);
  return absl::OkStatus();
}

absl::Status Engine::Locate(const wire::TcpRequest& request, Answer* answer) {
  if (!one_sided()) return MakeError(Reason::kLaneOff, "nobody fetches by itself here");
  const auto located = leases_->Locate(request.lease, request.offset, request.length);
  if (!located.ok()) return located.status();
  answer->location = wire::EncodeUcxLocation({.address = std::bit_cast<uint64_t>(located->data()),
                                              .nbytes = located->size(),
                                              .remote_key = remote_key_});
  return absl::OkStatus();
}

void Engine::Send(Reader& reader, std::unique_ptr<Answer> answer) {
  const std::span<const std::byte> data = answer->data();
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  param.user_data = answer.get();
  param.cb.send = &OnSent;
  param.flags =
      UCP_AM_SEND_FLAG_REPLY |
      (data.size() <= options_.ucx.eager_bytes ? UCP_AM_SEND_FLAG_EAGER : UCP_AM_SEND_FLAG_RNDV);
  void* const sent = ucp_am_send_nbx(reader.endpoint, kUcxAnswerId, answer->header.data(),
                                     answer->header.size(), data.data(), data.size(), &param);
  if (sent == nullptr) return;  // gone already
  if (UCS_PTR_IS_ERR(sent)) return OnFailure(&reader, reader.endpoint, UCS_PTR_STATUS(sent));
  next_cut_off_ = std::min(next_cut_off_, answer->cut_off);
  ++answers_;
  answer->reader = &reader;
  answer->place = reader.answers.insert(reader.answers.end(), answer.get());
  (void)answer.release();  // OnSent's
}

void Engine::Forget(Answer* answer) {
  const std::unique_ptr<Answer> owned(answer);
  --answers_;
  if (answer->reader != nullptr) {
    answer->reader->answers.erase(answer->place);
  } else {
    --leftover_;
  }
}

void Engine::Close(Reader& reader) {
  for (Answer* answer : reader.answers) answer->reader = nullptr;
  leftover_ += reader.answers.size();
  reader.answers.clear();
  take_down_.Close(reader.endpoint);
  readers_.erase(reader.endpoint);
}

Instant Engine::Tick(Instant now) {
  take_down_.Reap();
  if (now >= next_cut_off_) {
    next_cut_off_ = kNever;
    for (const auto& [endpoint, reader] : readers_) {
      for (const Answer* answer : reader->answers) {
        if (now < answer->cut_off) {
          next_cut_off_ = std::min(next_cut_off_, answer->cut_off);
        } else if (!std::exchange(reader->failed, true)) {
          some_failed_ = true;
          Log(options_.ucx.log, LogLevel::kWarning,
              StrCat("engine/ucx: cut off a reader that took too long: ", reader->peer, ", lease ",
                     answer->lease));
        }
      }
    }
  }
  if (std::exchange(some_failed_, false)) {
    std::vector<Reader*> failed;
    for (const auto& [endpoint, reader] : readers_) {
      if (reader->failed) failed.push_back(reader.get());
    }
    for (Reader* reader : failed) Close(*reader);
  }
  return take_down_.Wake(now, leftover_ > 0, next_cut_off_);
}

std::string Engine::DescribeReaders() {
  const auto described = std::make_shared<std::promise<std::string>>();
  loop_.Post([this, described] {
    char* text = nullptr;
    size_t length = 0;
    std::FILE* const stream = ::open_memstream(&text, &length);
    if (stream == nullptr) return described->set_value("");
    for (const auto& [endpoint, reader] : readers_) {
      if (!reader->failed) ucp_ep_print_info(endpoint, stream);
    }
    (void)std::fclose(stream);
    described->set_value(std::string(text, length));
    std::free(text);
  });
  return described->get_future().get();
}

void Engine::Finish() {
  ucp_listener_destroy(std::exchange(listener_, nullptr));
  while (!readers_.empty()) Close(*readers_.begin()->second);
  (void)loop_.ProgressUntil(
      [this] {
        (void)Tick(RealClock().Now());
        return answers_ == 0 && take_down_.empty();
      },
      kClosing);
}

// One line for each power of two, so that a scanner cannot flood the log.
void Engine::ReportBadPeer(const Reader& reader, std::string_view what) {
  if (!std::has_single_bit(++bad_peers_)) return;
  Log(options_.ucx.log, LogLevel::kWarning,
      StrCat("engine/ucx: closed the connection of ", reader.peer, ": ", what, " (", bad_peers_,
             " such so far)"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<UcxExportEngine>> CreateUcxExportEngine(
    const UcxExportOptions& options) {
  if (absl::Status s = CheckListen(options.listen, !options.advertise.empty()); !s.ok()) return s;
  if (UsesTcp(options.ucx) && !options.ucx.trusted_network && !options.listen.IsLoopback()) {
    return MakeError(
        Reason::kBadOption,
        StrCat("ucx: will not listen on ", options.listen.ToString(),
               " with transport tcp: whoever reaches UCX's ports there can write this process's "
               "memory; say --trusted-network if only trusted hosts do, name RDMA transports with "
               "--ucx-transports, or use engine tcp"));
  }
  if (options.listen.IsWildcard() && options.listen.is_v6()) {
    return MakeError(Reason::kBadAddress,
                     StrCat("ucx: cannot listen on ", options.listen.ToString(),
                            ": it takes IPv4 as well, which UCX cannot mix; name an address"));
  }
  absl::StatusOr<std::unique_ptr<UcxContext>> context =
      UcxContext::Create(options.ucx, options.listen.is_v6(), &options.listen);
  if (!context.ok()) return context.status();
  auto engine = std::make_unique<Engine>(options, *std::move(context));
  if (absl::Status s = engine->Listen(); !s.ok()) return s;
  return engine;
}

}  // namespace tensorferry::engine
