// A module that is linked to the system's UCX, as an MPI or another transport in a user's process is: for the test that
// NIXL, which brings a UCX of its own, works beside it. Every function returns what failed, or null.
#include <ucp/api/ucp.h>

#include <cstdint>
#include <cstring>
#include <string>

namespace {

ucp_context_h context = nullptr;
ucp_worker_h worker = nullptr;
ucp_ep_h self = nullptr;
std::string failure;

const char* Failed(const char* what, ucs_status_t status) {
  failure = std::string(what) + ": " + ucs_status_string(status);
  return failure.c_str();
}

ucs_status_t Wait(ucs_status_ptr_t request) {
  if (request == nullptr) return UCS_OK;
  if (UCS_PTR_IS_ERR(request)) return UCS_PTR_STATUS(request);
  ucs_status_t status;
  while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
    (void)ucp_worker_progress(worker);
  }
  ucp_request_free(request);
  return status;
}

}  // namespace

extern "C" {

// A worker, and an endpoint from it to itself.
const char* ucx_module_start() {
  ucp_params_t params = {};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_TAG;
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return Failed("ucp_config_read", status);
  status = ucp_init(&params, config, &context);
  ucp_config_release(config);
  if (status != UCS_OK) return Failed("ucp_init", status);
  ucp_worker_params_t worker_params = {};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SINGLE;
  status = ucp_worker_create(context, &worker_params, &worker);
  if (status != UCS_OK) return Failed("ucp_worker_create", status);
  ucp_address_t* address = nullptr;
  size_t length = 0;
  status = ucp_worker_get_address(worker, &address, &length);
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

const char* ucx_module_version() { return ucp_get_version_string(); }
}
