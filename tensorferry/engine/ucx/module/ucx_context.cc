#include "tensorferry/engine/ucx/module/ucx_context.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <ucs/debug/log_def.h>

#include <algorithm>
#include <charconv>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tensorferry/base/text.h"

namespace tensorferry::engine {
namespace {

thread_local const LogSink* log_of_this_thread = nullptr;

ucs_log_func_rc_t Forward(const char*, unsigned, const char*, ucs_log_level_t level,
                          const ucs_log_component_config_t*, const char* format,
                          va_list arguments) {
  if (log_of_this_thread == nullptr) return UCS_LOG_FUNC_RC_CONTINUE;
  if (level > UCS_LOG_LEVEL_WARN) return UCS_LOG_FUNC_RC_STOP;
  char line[1024];
  va_list copy;
  va_copy(copy, arguments);
  (void)std::vsnprintf(line, sizeof(line), format, copy);
  va_end(copy);
  // Peers that come and go are no errors of ours; what they cause is reported where it matters.
  Log(*log_of_this_thread, LogLevel::kDebug, StrCat("engine/ucx: UCX: ", line));
  return UCS_LOG_FUNC_RC_STOP;
}

bool IsName(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == ':' || c == '@';
  });
}

absl::Status Bad(std::string_view what) {
  return MakeError(Reason::kBadOption, StrCat("ucx: ", what));
}

std::optional<uint16_t> ParsePort(std::string_view text) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0) return std::nullopt;
  return port;
}

std::vector<std::string> Split(const std::string& text) { return absl::StrSplit(text, ','); }

// The interface that has this address; empty for a wildcard.
std::string InterfaceOf(const SocketAddress& address) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return "";
  std::string name;
  for (const ifaddrs* at = all; at != nullptr && name.empty(); at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    sockaddr_storage storage = {};
    std::memcpy(&storage, at->ifa_addr,
                family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    absl::StatusOr<SocketAddress> here = SocketAddress::FromSockaddr(storage);
    if (here.ok() && std::ranges::equal(here->bytes(), address.bytes())) name = at->ifa_name;
  }
  ::freeifaddrs(all);
  return name;
}

std::string Devices(const UcxOptions& options, const SocketAddress* listen) {
  if (!options.devices.empty()) return absl::StrJoin(options.devices, ",");
  if (UsesTcp(options)) {
    if (!options.trusted_network) return "lo";
    const std::string of_listen = listen == nullptr ? "" : InterfaceOf(*listen);
    return of_listen.empty() ? "all" : of_listen;
  }
  return options.rdma_devices.empty() ? "all" : absl::StrJoin(options.rdma_devices, ",");
}

// Released with the reading.
struct ConfigDeleter {
  void operator()(ucp_config_t* config) const { ucp_config_release(config); }
};

absl::StatusOr<std::unique_ptr<ucp_config_t, ConfigDeleter>> MakeConfig(const UcxOptions& options,
                                                                        bool v6,
                                                                        const SocketAddress* listen,
                                                                        bool prefixed) {
  ucp_config_t* read = nullptr;
  if (const ucs_status_t s = ucp_config_read(nullptr, nullptr, &read); s != UCS_OK) {
    return UcxError(Reason::kSystem, "ucx: cannot read its configuration", s);
  }
  std::unique_ptr<ucp_config_t, ConfigDeleter> config(read);
  std::vector<std::pair<std::string, std::string>> values = {
      {"TLS", UcxTransports(options)},
      {"NET_DEVICES", Devices(options, listen)},
      // Two lanes over one card gain nothing, and twice as many may break.
      {"MAX_RNDV_LANES", "1"},
  };
  if (UsesTcp(options)) {
    const std::string tcp = prefixed ? "TCP_" : "";
    values.emplace_back(StrCat(tcp, "CM_REUSEADDR"), "y");
    // Its own sockets must be of the listener's family: UCX 1.13 writes beyond its memory when a
    // peer of the other one connects.
    values.emplace_back(StrCat(tcp, "AF_PRIO"), v6 ? "inet6" : "inet");
    if (!options.port_range.empty()) {
      values.emplace_back(StrCat(tcp, "PORT_RANGE"), options.port_range);
    }
  }
  for (const auto& [name, value] : values) {
    if (const ucs_status_t s = ucp_config_modify(config.get(), name.c_str(), value.c_str());
        s != UCS_OK) {
      return UcxError(Reason::kBadOption, StrCat("ucx: ", name, "=", value), s);
    }
  }
  return config;
}

}  // namespace

absl::Status UcxError(Reason reason, std::string_view what, ucs_status_t status) {
  return MakeError(reason, StrCat(what, ": ", ucs_status_string(status)));
}

absl::Status ReceiveMessages(ucp_worker_h worker, unsigned id, ucp_am_recv_callback_t callback,
                             void* argument) {
  ucp_am_handler_param_t handler = {};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                       UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
  handler.id = id;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = callback;
  handler.arg = argument;
  const ucs_status_t s = ucp_worker_set_am_recv_handler(worker, &handler);
  return s == UCS_OK ? absl::OkStatus() : UcxError(Reason::kLaneOff, "ucx: no active messages", s);
}

bool UsesTcp(const UcxOptions& options) {
  const std::string transports = UcxTransports(options);
  if (transports.starts_with('^')) return true;  // all but some
  // UCX also takes "tcp:aux", for what connects the others.
  return std::ranges::any_of(Split(transports), [](const std::string& name) {
    return name == "all" || name == "tcp" || name.starts_with("tcp:");
  });
}

absl::Status CheckUcxOptions(const UcxOptions& options) {
  std::string names = UcxTransports(options);
  if (names.starts_with('^')) names.erase(0, 1);
  for (const std::string& name : Split(names)) {
    if (!IsName(name)) {
      return Bad(StrCat("transports \"", options.transports,
                        "\" are no comma-separated names such as rc,ud or tcp"));
    }
  }
  for (const std::string& name : options.devices) {
    if (!IsName(name)) {
      return Bad(StrCat("device \"", name, "\" is no name such as mlx5_0:1 or eth1"));
    }
  }
  if (!options.port_range.empty()) {
    const std::vector<std::string> ends = absl::StrSplit(options.port_range, '-');
    const auto low = ParsePort(ends.front());
    const auto high = ParsePort(ends.back());
    if (ends.size() != 2 || !low || !high || *low > *high) {
      return Bad(StrCat("port range \"", options.port_range,
                        "\" is not LOW-HIGH with ports from 1 to 65535"));
    }
  }
  if (options.get == UcxGet::kOn && EmulatesGet(options)) {
    return Bad(StrCat("get with transports ", UcxTransports(options),
                      ": the gateway's processor would do the card's work, and UCX 1.13 ends a "
                      "gateway whose reader goes away in the middle; name RDMA transports such as "
                      "rc with --ucx-transports, leave --ucx-get off, or measure it with --ucx-get "
                      "emulated"));
  }
  if (UsesTcp(options) && !options.trusted_network) {
    for (const std::string& name : options.devices) {
      if (name == "lo") continue;
      return Bad(StrCat("device ", name,
                        " with transport tcp: whoever reaches UCX's ports there can write this "
                        "process's memory; say --trusted-network if only trusted hosts do, or name "
                        "RDMA transports with --ucx-transports"));
    }
  }
  return absl::OkStatus();
}

bool EmulatesGet(const UcxOptions& options) {
  // Datagrams of InfiniBand have no READ.
  return UsesTcp(options) ||
         std::ranges::all_of(Split(UcxTransports(options)),
                             [](const std::string& name) { return name.starts_with("ud"); });
}

UcxLogScope::UcxLogScope(const LogSink* sink) : before_(log_of_this_thread) {
  static std::once_flag once;
  std::call_once(once, [] { ucs_log_push_handler(&Forward); });
  log_of_this_thread = sink;
}

UcxLogScope::~UcxLogScope() { log_of_this_thread = before_; }

absl::StatusOr<std::unique_ptr<UcxContext>> UcxContext::Create(const UcxOptions& options, bool v6,
                                                               const SocketAddress* listen) {
  if (absl::Status s = CheckUcxOptions(options); !s.ok()) return s;
  // Settings of a transport have its name in front or not, by UCX's version. One that it does not
  // know it takes, and says so in its log alone.
  std::string unknown;
  for (const bool prefixed : {false, true}) {
    unknown.clear();
    const LogSink listening = [&](LogLevel level, std::string_view line) {
      if (line.find("invalid configuration") != std::string_view::npos) unknown = line;
      Log(options.log, level, line);
    };
    const UcxLogScope log(&listening);
    absl::StatusOr<std::unique_ptr<UcxContext>> made = Make(options, v6, listen, prefixed);
    if (!made.ok() || unknown.empty()) return made;
  }
  return Bad(StrCat("this UCX does not know a setting (", unknown, ")"));
}

absl::StatusOr<std::unique_ptr<UcxContext>> UcxContext::Make(const UcxOptions& options, bool v6,
                                                             const SocketAddress* listen,
                                                             bool prefixed) {
  auto config = MakeConfig(options, v6, listen, prefixed);
  if (!config.ok()) return config.status();
  const auto off = [&](std::string_view what, ucs_status_t status) {
    return UcxError(Reason::kLaneOff,
                    StrCat("ucx: ", what, " with transports ", UcxTransports(options),
                           " on devices ", Devices(options, listen), v6 ? " over IPv6" : ""),
                    status);
  };
  std::unique_ptr<UcxContext> made(new UcxContext(options.log));
  ucp_params_t params = {};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  if (options.get != UcxGet::kOff) params.features |= UCP_FEATURE_RMA;
  params.name = "tensorferry";
  if (const ucs_status_t s = ucp_init(&params, config->get(), &made->context_); s != UCS_OK) {
    made->context_ = nullptr;
    return off("cannot start", s);
  }
  ucp_worker_params_t worker_params = {};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SINGLE;
  if (const ucs_status_t s = ucp_worker_create(made->context_, &worker_params, &made->worker_);
      s != UCS_OK) {
    made->worker_ = nullptr;
    return off("no worker", s);
  }
  if (const ucs_status_t s = ucp_worker_get_efd(made->worker_, &made->event_fd_); s != UCS_OK) {
    return off("nothing to wait on", s);
  }
  return made;
}

UcxContext::~UcxContext() {
  const UcxLogScope log(&log_);
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

}  // namespace tensorferry::engine
