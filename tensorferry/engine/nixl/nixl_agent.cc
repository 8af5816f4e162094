#include "tensorferry/engine/nixl/nixl_agent.h"

#include <unistd.h>

#include <cassert>
#include <cstdlib>
#include <utility>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry::engine {
namespace {

constexpr char kBackend[] = "UCX";
constexpr uint64_t kDevice = 0;
constexpr uint64_t kListenDelayUs = 1000;

absl::Status Refused(std::string_view what, NixlStatus status) {
  return MakeError(Reason::kProtocol, StrCat("nixl: ", what, ": ", NixlStatusText(status)));
}

absl::Status Off(std::string_view what, NixlStatus status) {
  return MakeError(Reason::kLaneOff, StrCat("nixl: ", what, ": ", NixlStatusText(status)));
}

// Handles of the C API that end with a call.
template <class Handle>
class Owned {
 public:
  explicit Owned(NixlStatus (*destroy)(Handle)) : destroy_(destroy) {}
  ~Owned() {
    if (handle_ != nullptr) (void)destroy_(handle_);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  Handle* out() { return &handle_; }
  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
  NixlStatus (*destroy_)(Handle);
};

// A list of one range.
NixlStatus MakeRange(const NixlApi& api, uintptr_t address, size_t length,
                     Owned<NixlXferListPtr>* list) {
  const NixlStatus made = api.create_xfer_dlist(kNixlDram, list->out());
  return made != kNixlOk ? made : api.xfer_dlist_add_desc(list->get(), address, length, kDevice);
}

NixlStatus MakeRegion(const NixlApi& api, std::span<const std::byte> memory,
                      Owned<NixlRegListPtr>* list) {
  const NixlStatus made = api.create_reg_dlist(kNixlDram, list->out());
  return made != kNixlOk
             ? made
             : api.reg_dlist_add_desc(list->get(), reinterpret_cast<uintptr_t>(memory.data()),
                                      memory.size(), kDevice, nullptr, 0);
}

}  // namespace

NixlPeer::~NixlPeer() {
  if (!agent_->forked()) (void)agent_->api().invalidate_remote_md(agent_->agent_, name_.c_str());
}

NixlRead::~NixlRead() {
  if (request_ == nullptr || agent_->forked()) return;
  assert(status_ != kNixlInProgress);
  (void)agent_->api().release_xfer_req(agent_->agent_, request_);
  (void)agent_->api().destroy_xfer_req(request_);
}

NixlRead::State NixlRead::Poll() {
  if (status_ == kNixlInProgress) {
    status_ = agent_->forked() ? kNixlInvalidState
                               : agent_->api().get_xfer_status(agent_->agent_, request_);
  }
  if (status_ == kNixlInProgress) return State::kPending;
  return status_ == kNixlOk ? State::kDone : State::kFailed;
}

absl::StatusOr<std::shared_ptr<NixlAgent>> NixlAgent::Create(
    std::shared_ptr<const NixlLibrary> library, const NixlAgentOptions& options) {
  std::shared_ptr<NixlAgent> agent(new NixlAgent(std::move(library), options));
  if (absl::Status s = agent->Start(); !s.ok()) return s;
  return agent;
}

NixlAgent::NixlAgent(std::shared_ptr<const NixlLibrary> library, NixlAgentOptions options)
    : library_(std::move(library)), options_(std::move(options)), process_(::getpid()) {}

absl::Status NixlAgent::Start() {
  const NixlAgentConfig config{.progress_thread = options_.progress_thread,
                               .listen_thread = options_.listen,
                               .listen_port = 0,
                               .thread_sync = kNixlSyncStrict,
                               .workers = 1,
                               .progress_delay_us = options_.progress_delay_us,
                               .listen_delay_us = kListenDelayUs,
                               .telemetry = false};
  if (const NixlStatus s = api().create_configured_agent(options_.name.c_str(), &config, &agent_);
      s != kNixlOk) {
    agent_ = nullptr;
    return Off("cannot create an agent", s);
  }
  Owned<NixlMemListPtr> memories(api().destroy_mem_list);
  Owned<NixlParamsPtr> params(api().destroy_params);
  if (const NixlStatus s = api().get_plugin_params(agent_, kBackend, memories.out(), params.out());
      s != kNixlOk) {
    return MakeError(
        Reason::kLaneOff,
        StrCat("nixl: no UCX plugin beside ", library_->path(), " (", NixlStatusText(s),
               "); install NIXL with its plugins, or point NIXL_PLUGIN_DIR to them"));
  }
  if (const NixlStatus s = api().create_backend(agent_, kBackend, params.get(), &backend_);
      s != kNixlOk) {
    backend_ = nullptr;
    return Off("cannot create the UCX backend", s);
  }
  if (const NixlStatus s = api().create_opt_args(&by_ucx_); s != kNixlOk) {
    by_ucx_ = nullptr;
    return Off("cannot create arguments", s);
  }
  // Without it a registration is not tied to UCX: over verbs its remote key would be missing.
  if (const NixlStatus s = api().opt_args_add_backend(by_ucx_, backend_); s != kNixlOk) {
    return Off("cannot name the UCX backend", s);
  }
  return absl::OkStatus();
}

NixlAgent::~NixlAgent() {
  if (agent_ == nullptr || forked()) return;
  for (const Registration& r : registered_) {
    Owned<NixlRegListPtr> list(api().destroy_reg_dlist);
    if (MakeRegion(api(), r.memory, &list) == kNixlOk) {
      (void)api().deregister_mem(agent_, list.get(), by_ucx_);
    }
  }
  if (by_ucx_ != nullptr) (void)api().destroy_opt_args(by_ucx_);
  if (backend_ != nullptr) (void)api().destroy_backend(backend_);
  (void)api().destroy_agent(agent_);
}

bool NixlAgent::forked() const { return ::getpid() != process_; }

absl::Status NixlAgent::CheckProcess() const {
  if (!forked()) return absl::OkStatus();
  return MakeError(Reason::kLaneOff,
                   StrCat("nixl: the agent belongs to process ", process_, ", this is its child ",
                          ::getpid(), "; create exporters and pullers after the fork"));
}

absl::Status NixlAgent::Register(std::span<const std::byte> memory,
                                 std::shared_ptr<const void> owner) {
  if (absl::Status s = CheckProcess(); !s.ok()) return s;
  Owned<NixlRegListPtr> list(api().destroy_reg_dlist);
  NixlStatus s = MakeRegion(api(), memory, &list);
  if (s == kNixlOk) s = api().register_mem(agent_, list.get(), by_ucx_);
  if (s != kNixlOk) {
    return Off(StrCat("cannot register ", memory.size(),
                      " bytes (over verbs, see the memlock limit: ulimit -l)"),
               s);
  }
  const std::lock_guard<std::mutex> lock(mu_);
  registered_.push_back({memory, std::move(owner)});
  return absl::OkStatus();
}

absl::StatusOr<std::string> NixlAgent::LocalMetadata() {
  if (absl::Status s = CheckProcess(); !s.ok()) return s;
  void* data = nullptr;
  size_t size = 0;
  if (const NixlStatus s = api().get_local_md(agent_, &data, &size); s != kNixlOk) {
    return Refused("cannot describe this agent", s);
  }
  std::string metadata(static_cast<const char*>(data), size);
  std::free(data);
  return metadata;
}

absl::StatusOr<std::shared_ptr<NixlPeer>> NixlAgent::Load(std::string_view metadata) {
  if (absl::Status s = CheckProcess(); !s.ok()) return s;
  char* name = nullptr;
  if (const NixlStatus s = api().load_remote_md(agent_, metadata.data(), metadata.size(), &name);
      s != kNixlOk) {
    return Refused("the gateway's metadata were refused", s);
  }
  auto peer = std::make_shared<NixlPeer>(shared_from_this(), name);
  std::free(name);
  return peer;
}

absl::Status NixlAgent::Fetch(const std::string& name, const std::string& ip, uint16_t port) {
  if (absl::Status s = CheckProcess(); !s.ok()) return s;
  Owned<NixlOptArgsPtr> args(api().destroy_opt_args);
  NixlStatus s = api().create_opt_args(args.out());
  if (s == kNixlOk) s = api().opt_args_set_ip_addr(args.get(), ip.c_str());
  if (s == kNixlOk) s = api().opt_args_set_port(args.get(), port);
  if (s == kNixlOk) s = api().fetch_remote_md(agent_, name.c_str(), args.get());
  return s >= kNixlOk ? absl::OkStatus() : Refused("cannot ask for the gateway's metadata", s);
}

bool NixlAgent::Covers(const std::string& name, uint64_t address, uint64_t length) {
  if (forked()) return false;
  Owned<NixlXferListPtr> range(api().destroy_xfer_dlist);
  return MakeRange(api(), address, length, &range) == kNixlOk &&
         api().check_remote_md(agent_, name.c_str(), range.get()) == kNixlOk;
}

std::shared_ptr<NixlPeer> NixlAgent::Loaded(const std::string& name, uint64_t address,
                                            uint64_t length) {
  if (!Covers(name, address, length)) return nullptr;
  return std::make_shared<NixlPeer>(shared_from_this(), name);
}

absl::StatusOr<std::unique_ptr<NixlRead>> NixlAgent::Read(const std::shared_ptr<NixlPeer>& peer,
                                                          std::span<std::byte> into,
                                                          uint64_t address,
                                                          std::string_view notification) {
  if (absl::Status s = CheckProcess(); !s.ok()) return s;
  Owned<NixlXferListPtr> local(api().destroy_xfer_dlist);
  Owned<NixlXferListPtr> remote(api().destroy_xfer_dlist);
  Owned<NixlOptArgsPtr> args(api().destroy_opt_args);
  NixlStatus s = MakeRange(api(), reinterpret_cast<uintptr_t>(into.data()), into.size(), &local);
  if (s == kNixlOk) s = MakeRange(api(), address, into.size(), &remote);
  if (s == kNixlOk) s = api().create_opt_args(args.out());
  if (s == kNixlOk) s = api().opt_args_add_backend(args.get(), backend_);
  if (s == kNixlOk && !notification.empty()) {
    s = api().opt_args_set_notif_msg(args.get(), notification.data(), notification.size());
    // In this order: the other clears the text.
    if (s == kNixlOk) s = api().opt_args_set_has_notif(args.get(), true);
  }
  std::unique_ptr<NixlRead> read(new NixlRead(shared_from_this(), peer));
  if (s == kNixlOk) {
    s = api().create_xfer_req(agent_, kNixlRead, local.get(), remote.get(), peer->name().c_str(),
                              &read->request_, args.get());
    if (s != kNixlOk) read->request_ = nullptr;
  }
  if (s == kNixlOk) s = api().post_xfer_req(agent_, read->request_, args.get());
  read->status_ = s;
  if (s < kNixlOk) return Refused("the READ was refused", s);
  return read;
}

absl::Status NixlAgent::Notify(const NixlPeer& peer, std::string_view notification) {
  if (absl::Status s = CheckProcess(); !s.ok()) return s;
  const NixlStatus s = api().gen_notif(agent_, peer.name().c_str(), notification.data(),
                                       notification.size(), by_ucx_);
  return s >= kNixlOk ? absl::OkStatus() : Refused("cannot notify the gateway", s);
}

absl::Status NixlAgent::TakeNotifications(
    const std::function<void(std::string_view)>& on_notification) {
  if (absl::Status s = CheckProcess(); !s.ok()) return s;
  Owned<NixlNotifMapPtr> map(api().destroy_notif_map);
  NixlStatus s = api().create_notif_map(map.out());
  if (s == kNixlOk) s = api().get_notifs(agent_, map.get(), nullptr);
  if (s < kNixlOk) return Refused("cannot take notifications", s);
  size_t agents = 0;
  (void)api().notif_map_size(map.get(), &agents);
  for (size_t i = 0; i < agents; ++i) {
    const char* agent = nullptr;
    size_t count = 0;
    if (api().notif_map_get_agent_at(map.get(), i, &agent) != kNixlOk) continue;
    if (api().notif_map_get_notifs_size(map.get(), agent, &count) != kNixlOk) continue;
    for (size_t j = 0; j < count; ++j) {
      const void* data = nullptr;
      size_t size = 0;
      if (api().notif_map_get_notif(map.get(), agent, j, &data, &size) != kNixlOk) continue;
      on_notification({static_cast<const char*>(data), size});
    }
  }
  return absl::OkStatus();
}

// There is no call that does only this. What it takes is nothing: no peer notifies one that only
// READs.
void NixlAgent::Progress() {
  (void)TakeNotifications([](std::string_view) {});
}

absl::StatusOr<NixlServer> ServeByNixl(const NixlLibraryOptions& library,
                                       const NixlAgentOptions& options,
                                       std::span<const std::byte> memory) {
  absl::StatusOr<std::shared_ptr<const NixlLibrary>> opened = NixlLibrary::Open(library);
  if (!opened.ok()) return opened.status();
  absl::StatusOr<std::shared_ptr<NixlAgent>> agent = NixlAgent::Create(*std::move(opened), options);
  if (!agent.ok()) return agent.status();
  if (absl::Status s = (*agent)->Register(memory, nullptr); !s.ok()) return s;
  absl::StatusOr<std::string> metadata = (*agent)->LocalMetadata();
  if (!metadata.ok()) return metadata.status();
  return NixlServer{.agent = *std::move(agent), .metadata = *std::move(metadata)};
}

}  // namespace tensorferry::engine
