#include "tensorferry/prometheus/metrics_server.h"

#include <httplib.h>
#include <prometheus/text_serializer.h>
#include <sys/socket.h>

#include <atomic>
#include <system_error>
#include <thread>
#include <utility>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/tcp_socket.h"
#include "tensorferry/prometheus/collector.h"

namespace tensorferry {
namespace {

constexpr size_t kThreads = 2;
// Who asks for metrics has his request ready; the destructor waits no longer for one who does not.
constexpr time_t kReadSeconds = 1;
constexpr size_t kMostPayload = 1024;

// Without SO_REUSEPORT, by which two processes would silently share the port.
void SetSocketOptions(int fd) {
  const int one = 1;
  (void)::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
}

}  // namespace

struct MetricsServer::State {
  explicit State(std::shared_ptr<const Metrics> metrics) : collector(std::move(metrics)) {
    server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    server.set_socket_options(SetSocketOptions);
    server.set_read_timeout(kReadSeconds);
    server.set_write_timeout(kReadSeconds);
    server.set_keep_alive_timeout(kReadSeconds);
    server.set_payload_max_length(kMostPayload);
    server.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
      response.set_content(prometheus::TextSerializer().Serialize(collector.Collect()),
                           "text/plain; version=0.0.4; charset=utf-8");
    });
  }

  SocketAddress address;
  const PrometheusCollector collector;
  httplib::Server server;
  std::atomic<bool> ended = false;
  std::thread thread;
};

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    std::shared_ptr<const Metrics> metrics, const SocketAddress& listen) {
  // The server only says that it could not bind; the system says why.
  if (absl::Status s = engine::ListenTcp(listen).status(); !s.ok()) {
    return Annotate(s, StrCat("metrics cannot be served at ", listen.ToString()));
  }
  auto state = std::make_unique<State>(std::move(metrics));
  State* const s = state.get();
  s->address = listen;
  const int port = listen.port() == 0 ? s->server.bind_to_any_port(listen.HostText())
                   : s->server.bind_to_port(listen.HostText(), listen.port()) ? listen.port()
                                                                              : -1;
  if (port <= 0) {
    return MakeError(Reason::kAddressInUse,
                     StrCat("metrics cannot be served at ", listen.ToString()));
  }
  s->address.set_port(static_cast<uint16_t>(port));
  try {
    s->thread = std::thread([s] {
      s->server.listen_after_bind();
      s->ended = true;
    });
  } catch (const std::system_error& e) {
    return SystemError(e.code().value(), "a thread that serves metrics (see ulimit -u)");
  }
  // Only a server that runs can be stopped.
  while (!s->server.is_running() && !s->ended) std::this_thread::yield();
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(state)));
}

MetricsServer::MetricsServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

MetricsServer::~MetricsServer() {
  state_->server.stop();
  state_->thread.join();
}

const SocketAddress& MetricsServer::address() const { return state_->address; }

}  // namespace tensorferry
