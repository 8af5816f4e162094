// A module that is linked to the system's UCX, as an MPI or another transport in a user's process is: for the test that
// NIXL, which brings a UCX of its own, works beside it, and for what a stranger may say to engine/ucx. Every function
// returns what failed, or null.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <ucp/api/ucp.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>

namespace {

ucp_context_h context = nullptr;
ucp_worker_h worker = nullptr;
ucp_ep_h self = nullptr;
std::string failure;

const char* Failed(const char* what, ucs_status_t status) {
  failure = std::string(what) + ": " + ucs_status_string(status);
  return failure.c_str();
}

ucs_status_t Wait(ucs_status_ptr_t request, ucp_worker_h mover = worker) {
  if (request == nullptr) return UCS_OK;
  if (UCS_PTR_IS_ERR(request)) return UCS_PTR_STATUS(request);
  ucs_status_t status;
  while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
    (void)ucp_worker_progress(mover);
  }
  ucp_request_free(request);
  return status;
}

// A context with one worker; `on_loopback`: by tcp there. What failed, or null.
const char* Open(uint64_t features, bool on_loopback, ucp_context_h* opened, ucp_worker_h* worked) {
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return Failed("ucp_config_read", status);
  if (on_loopback) {
    (void)ucp_config_modify(config, "TLS", "tcp");
    (void)ucp_config_modify(config, "NET_DEVICES", "lo");
  }
  ucp_params_t params = {};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = features;
  status = ucp_init(&params, config, opened);
  ucp_config_release(config);
  if (status != UCS_OK) return Failed("ucp_init", status);
  ucp_worker_params_t worker_params = {};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SINGLE;
  status = ucp_worker_create(*opened, &worker_params, worked);
  return status == UCS_OK ? nullptr : Failed("ucp_worker_create", status);
}

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

struct Liar {
  static void OnConnection(ucp_conn_request_h request, void*);
  static ucs_status_t OnRequest(void*, const void* header, size_t, void*, size_t,
                                const ucp_am_recv_param_t* param);
  size_t (*answer)(const void* request, void* header, void* data, size_t room) = nullptr;
  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
  ucp_listener_h listener = nullptr;
  std::atomic<bool> stop{false};
  std::thread thread;
};
Liar liar;

void Liar::OnConnection(ucp_conn_request_h request, void*) {
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.conn_request = request;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = [](void*, ucp_ep_h, ucs_status_t) {};
  ucp_ep_h reader = nullptr;
  (void)ucp_ep_create(liar.worker, &params, &reader);
}

ucs_status_t Liar::OnRequest(void*, const void* header, size_t, void*, size_t,
                             const ucp_am_recv_param_t* param) {
  struct Lie {
    char header[32] = {};
    char data[1 << 20] = {};
  };
  auto* lie = new Lie();
  const size_t length = liar.answer(header, lie->header, lie->data, sizeof(lie->data));
  ucp_request_param_t send = {};
  send.op_attr_mask =
      UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  send.flags = UCP_AM_SEND_FLAG_REPLY;
  send.user_data = lie;
  send.cb.send = [](void* request, ucs_status_t, void* sent) {
    ucp_request_free(request);
    delete static_cast<Lie*>(sent);
  };
  const ucs_status_ptr_t sent = ucp_am_send_nbx(param->reply_ep, 2, lie->header,
                                                sizeof(lie->header), lie->data, length, &send);
  if (!UCS_PTR_IS_PTR(sent)) delete lie;
  return UCS_OK;
}

}  // namespace

extern "C" {

// A worker, and an endpoint from it to itself.
const char* ucx_module_start() {
  const char* const failed = Open(UCP_FEATURE_TAG, /*on_loopback=*/false, &context, &worker);
  if (failed != nullptr) return failed;
  ucp_address_t* address = nullptr;
  size_t length = 0;
  ucs_status_t status = ucp_worker_get_address(worker, &address, &length);
  if (status != UCS_OK) return Failed("ucp_worker_get_address", status);
  ucp_ep_params_t ep_params = {};
  ep_params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
  ep_params.address = address;
  status = ucp_ep_create(worker, &ep_params, &self);
  ucp_worker_release_address(worker, address);
  return status == UCS_OK ? nullptr : Failed("ucp_ep_create", status);
}

// Bytes through UCX, to itself.
const char* ucx_module_exchange() {
  static char sent[1 << 20];
  static char received[sizeof(sent)];
  std::memset(sent, 0x5a, sizeof(sent));
  std::memset(received, 0, sizeof(received));
  constexpr uint64_t kTag = 7;
  const ucp_request_param_t param = {};
  ucs_status_ptr_t receive =
      ucp_tag_recv_nbx(worker, received, sizeof(received), kTag, UINT64_MAX, &param);
  ucs_status_t status = Wait(ucp_tag_send_nbx(self, sent, sizeof(sent), kTag, &param));
  if (status != UCS_OK) return Failed("ucp_tag_send_nbx", status);
  status = Wait(receive);
  if (status != UCS_OK) return Failed("ucp_tag_recv_nbx", status);
  return std::memcmp(sent, received, sizeof(sent)) == 0 ? nullptr : "other bytes arrived";
}

const char* ucx_module_stop() {
  const ucp_request_param_t param = {};
  const ucs_status_t status = Wait(ucp_ep_close_nbx(self, &param));
  ucp_worker_destroy(worker);
  ucp_cleanup(context);
  return status == UCS_OK ? nullptr : Failed("ucp_ep_close_nbx", status);
}

// Requests that engine/ucx cannot have sent, from an endpoint of its own to a gateway on 127.0.0.1: `form` 0 a short
// header, 1 a header of zeros, 2 one without an endpoint to reply to, 3 one with a megabyte of data behind it.
const char* ucx_module_garble(int port, int form) {
  ucp_context_h own = nullptr;
  ucp_worker_h stranger = nullptr;
  const char* const failed = Open(UCP_FEATURE_AM, /*on_loopback=*/true, &own, &stranger);
  if (failed != nullptr) return failed;
  sockaddr_in address = Loopback(port);
  ucp_ep_params_t ep_params = {};
  ep_params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
                         UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  ep_params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  ep_params.sockaddr.addr = reinterpret_cast<sockaddr*>(&address);
  ep_params.sockaddr.addrlen = sizeof(address);
  ep_params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  ucp_ep_h gateway = nullptr;
  const ucs_status_t status = ucp_ep_create(stranger, &ep_params, &gateway);
  if (status != UCS_OK) return Failed("ucp_ep_create", status);
  static const char header[96] = {};
  static const char data[1 << 20] = {};
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = form == 2 ? 0 : UCP_AM_SEND_FLAG_REPLY;
  const ucs_status_ptr_t sent = ucp_am_send_nbx(gateway, 1, header, form == 0 ? 5 : sizeof(header),
                                                data, form == 3 ? sizeof(data) : 0, &param);
  // The gateway may close in the middle, and that is fine.
  (void)Wait(sent, stranger);
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  (void)Wait(ucp_ep_close_nbx(gateway, &param), stranger);
  ucp_worker_destroy(stranger);
  ucp_cleanup(own);
  return nullptr;
}

// A gateway on 127.0.0.1 that answers every request as `answer` says: it is given the request's header, fills the
// answer's (32 bytes) and its data (at most `room`), and returns how many bytes those are.
const char* ucx_module_lie(size_t (*answer)(const void* request, void* header, void* data,
                                            size_t room),
                           int* port) {
  liar.answer = answer;
  const char* const failed =
      Open(UCP_FEATURE_AM, /*on_loopback=*/true, &liar.context, &liar.worker);
  if (failed != nullptr) return failed;
  ucp_am_handler_param_t handler = {};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB;
  handler.id = 1;
  handler.cb = &Liar::OnRequest;
  ucs_status_t status = ucp_worker_set_am_recv_handler(liar.worker, &handler);
  if (status != UCS_OK) return Failed("ucp_worker_set_am_recv_handler", status);
  sockaddr_in address = Loopback(0);
  ucp_listener_params_t listen = {};
  listen.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  listen.sockaddr.addr = reinterpret_cast<sockaddr*>(&address);
  listen.sockaddr.addrlen = sizeof(address);
  listen.conn_handler.cb = &Liar::OnConnection;
  status = ucp_listener_create(liar.worker, &listen, &liar.listener);
  if (status != UCS_OK) return Failed("ucp_listener_create", status);
  ucp_listener_attr_t attributes = {};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  status = ucp_listener_query(liar.listener, &attributes);
  if (status != UCS_OK) return Failed("ucp_listener_query", status);
  *port = ntohs(reinterpret_cast<const sockaddr_in*>(&attributes.sockaddr)->sin_port);
  liar.stop.store(false);
  liar.thread = std::thread([] {
    while (!liar.stop.load()) {
      if (ucp_worker_progress(liar.worker) == 0) std::this_thread::yield();
    }
  });
  return nullptr;
}

void ucx_module_lie_no_more() {
  liar.stop.store(true);
  liar.thread.join();
  ucp_listener_destroy(liar.listener);
  ucp_worker_destroy(liar.worker);
  ucp_cleanup(liar.context);
}

const char* ucx_module_version() { return ucp_get_version_string(); }
}
