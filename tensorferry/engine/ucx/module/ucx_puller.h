// The pulls of one worker over UCX, by one thread that owns its worker and endpoints.
//
//   auto pull = std::make_shared<UcxPull>(...);
//   puller->Begin(pull);
//   while (!pull->done.load()) poll(pull->event);
//   puller->Acknowledge(pull);        // or, before it is done: puller->Abandon(pull), which waits
//
// UCX cannot stop a rendezvous that has begun: giving up one pull closes the endpoint by force, which
// ends its siblings too; they are asked for again on a new one, within their own deadlines. Memory is
// the caller's again only once UCX has completed: a pull is not done before.
// A pull of a gateway that lets readers fetch by themselves asks where the lease lies, and then GETs
// the payload and, when that has arrived, the stamps around it: they go before any byte of the payload
// does, so that both being there proves every byte (ucx_puller_get.cc).
// An endpoint that worked before and breaks before an answer begins is replaced within the pull (the
// gateway was restarted). A gateway that cannot be reached is remembered for a growing while.
// Thread-safety: Begin, Acknowledge and Abandon from any thread; one pull by one thread at a time.
#ifndef TENSORFERRY_ENGINE_UCX_MODULE_UCX_PULLER_H_
#define TENSORFERRY_ENGINE_UCX_MODULE_UCX_PULLER_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/base/net.h"
#include "tensorferry/engine/ucx/module/ucx_loop.h"
#include "tensorferry/engine/ucx/ucx_options.h"
#include "tensorferry/wire/frame.h"
#include "tensorferry/wire/tcp_messages.h"

namespace tensorferry::engine {

// One pull, shared by its op and the thread.
struct UcxPull {
  // Set by the op, and left alone then.
  std::vector<SocketAddress> addresses = {};  // at least one; of one gateway
  wire::TcpRequest request = {};              // all but number and deadline_ms
  bool offers_get = false;                    // its descriptor says so
  uint64_t lease_bytes = 0;                   // of which the request wants some
  std::span<std::byte> into = {};             // request.length bytes
  std::shared_ptr<const void> into_owner = {};
  Instant deadline = kNever;
  UniqueFd event = {};  // readable when done

  // The thread's, and the request's kind.
  size_t at = 0;                             // which address
  uint64_t number = 0;                       // of the request that is under way; 0: none
  bool fresh = false;                        // asked on an endpoint that was new
  uint64_t heard_before = 0;                 // answers on the endpoint, before it was asked
  Instant attention = kNever;                // when it is to be looked at
  Instant move_on = kNever;                  // to the next address, if not connected by then
  absl::Status failure = {};                 // of the addresses before
  std::optional<absl::Status> verdict = {};  // what it ends with once UCX lets go of the memory

  std::atomic<bool> done = false;
  absl::Status result = {};  // once done
};

class UcxPuller final : private UcxLoop::Handler {
 public:
  static absl::StatusOr<std::unique_ptr<UcxPuller>> Create(const UcxPullOptions& options, bool v6);
  ~UcxPuller() override { loop_.Stop(); }

  void Begin(std::shared_ptr<UcxPull> pull);
  // Returns when nothing is written any more to the pull's memory.
  void Abandon(const std::shared_ptr<UcxPull>& pull);
  // A pull that has ended well: tells the gateway that its reader has all bytes.
  void Acknowledge(std::shared_ptr<UcxPull> pull);

 private:
  using PullPtr = std::shared_ptr<UcxPull>;
  using RemoteKey = std::shared_ptr<ucp_rkey>;
  struct Link;
  // Of one that fetches by itself: what it was told, and what it has read.
  struct Get {
    uint64_t address = 0;  // of the lease's payload
    RemoteKey key = {};
    bool proving = false;  // the payload is there, the stamps are not yet
    ucs_status_t status = UCS_OK;
    std::array<std::byte, wire::kFrameOverhead> stamps = {};
  };
  // A request on its way. UCX may read its header until `sending` is over, and write into its pull's
  // memory, or its own, until nothing is `receiving`; it lives until then and until nobody waits for
  // its answer.
  struct Ask {
    UcxPuller* puller = nullptr;
    uint64_t number = 0;
    Link* link = nullptr;  // null once it has gone
    PullPtr pull = {};     // null: nobody waits for the answer
    bool done = false;     // an Acknowledge
    bool sending = false;
    int receiving = 0;
    std::unique_ptr<Get> get = {};
    std::array<std::byte, wire::kTcpRequestBytes> header = {};
  };
  // An endpoint.
  struct Link {
    UcxPuller* puller = nullptr;
    SocketAddress address = {};
    ucp_ep_h endpoint = nullptr;
    bool connected = false;
    Instant gives_up = kNever;  // unless connected by then
    uint64_t heard = 0;         // answers
    RemoteKey key = {};         // of its gateway's arena, and as it was packed
    std::vector<std::byte> packed_key = {};
    std::set<Ask*> asks = {};
    std::optional<ucs_status_t> failed = {};
  };
  struct Gateway {
    std::unique_ptr<Link> link = {};
    Duration backoff = {};
    Instant retry_at = Instant::min();
    absl::Status failure = {};  // until retry_at
  };

  UcxPuller(const UcxPullOptions& options, std::unique_ptr<UcxContext> context)
      : options_(options), loop_(std::move(context), options.ucx.log) {}
  absl::Status Start();

  static void OnFailure(void* link, ucp_ep_h, ucs_status_t status);
  static void OnSent(void* request, ucs_status_t status, void* ask);
  static void OnGot(void* request, ucs_status_t status, void* ask);
  static void OnReceived(void* request, ucs_status_t status, size_t, void* ask);
  static ucs_status_t OnAnswer(void* self, const void* header, size_t header_length, void* data,
                               size_t length, const ucp_am_recv_param_t* param);

  Instant Tick(Instant now) override;
  void Finish() override;

  void ChooseAddress(UcxPull& pull) const;
  void Issue(const PullPtr& pull, Instant now);
  absl::StatusOr<Link*> LinkTo(const SocketAddress& address, Instant now);
  absl::StatusOr<std::unique_ptr<Link>> Connect(const SocketAddress& address, Instant now);
  Gateway& GatewayAt(const SocketAddress& address, Instant now);
  void Send(Link& link, std::unique_ptr<Ask> ask);
  void Sent(Ask* ask, ucs_status_t status);
  void Received(Ask* ask, ucs_status_t status);
  ucs_status_t TakeAnswer(Link& link, std::span<const std::byte> header, void* data, size_t length,
                          bool rendezvous);
  // The endpoint goes, and what waits for an answer on it fails.
  ucs_status_t Nonsense(Link& link, std::string_view what);
  ucs_status_t TakePayload(Ask& ask, void* data, bool rendezvous);
  ucs_status_t TakeLocation(Ask& ask, std::span<const std::byte> data);
  absl::StatusOr<RemoteKey> KeyOf(Link& link, std::span<const std::byte> packed) const;
  void Fetch(Ask& ask, std::span<std::byte> into, uint64_t address);
  void Prove(Ask& ask);
  void Got(Ask* ask, ucs_status_t status);
  void AskInstead(UcxPull& pull);
  void TakeRefusal(const PullPtr& pull, uint16_t status);

  void Connected(Link& link);
  void CountHandshake(const absl::Status& result);
  // The endpoint broke by itself.
  void LinkFailed(Link& link, Instant now);
  // Closes it by force. Whoever has not begun to receive is asked for again, all but `except`;
  // whoever has, when UCX has let go.
  void Break(Link& link, const UcxPull* except);
  void Shut(Link& link);
  void AddressFailed(const PullPtr& pull, const absl::Status& why);
  void Attend(const PullPtr& pull, Instant now);
  void GiveUp(const PullPtr& pull, const absl::Status& why);
  void Detach(UcxPull& pull);
  void Settle(Ask* ask);
  void End(const PullPtr& pull, const absl::Status& status);
  static std::string Subject(const UcxPull& pull);
  static absl::Status TimedOut(const UcxPull& pull, bool connected, bool begun);
  Ask* AskOf(const UcxPull& pull) const;
  void LookAt(UcxPull& pull, Instant when);

  const UcxPullOptions options_;

  // The loop's own.
  std::map<SocketAddress, Gateway> gateways_;
  std::unordered_map<ucp_ep_h, Link*> links_;
  std::unordered_map<uint64_t, std::unique_ptr<Ask>> asks_;
  std::set<PullPtr> pulls_;
  std::vector<PullPtr> again_;  // to be asked for again at the next tick
  UcxTakeDown take_down_;
  uint64_t next_number_ = 1;
  size_t acknowledgements_ = 0;  // that were not answered yet
  size_t leftover_ = 0;          // asks whose endpoint was closed
  Instant next_look_ = kNever;
  bool some_failed_ = false;
  bool asked_instead_ = false;  // and said so
  UcxLoop loop_;
};

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_UCX_MODULE_UCX_PULLER_H_
