#include "tensorferry/engine/tcp/tcp_served_connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry::engine {
namespace {

// How much one connection sends before the others get a turn: measured, see docs/tcp.md.
constexpr int64_t kQuantum = 512 << 10;
// What a message costs of the turn, so that a stream of empty reads ends it too.
constexpr int64_t kMessageCost = 4 << 10;

}  // namespace

TcpServedConnection::TcpServedConnection(UniqueFd fd, const SocketAddress& peer, bool refuse)
    : fd_(std::move(fd)), peer_(peer), refuse_(refuse) {}

void TcpServedConnection::Note(uint32_t epoll_events) {
  const bool broken = (epoll_events & (EPOLLHUP | EPOLLERR)) != 0;
  if (broken || (epoll_events & (EPOLLIN | EPOLLRDHUP)) != 0) readable_ = true;
  if (broken || (epoll_events & EPOLLOUT) != 0) writable_ = true;
  if (broken || (epoll_events & EPOLLRDHUP) != 0) hung_up_ = true;
}

TcpServedConnection::Turn TcpServedConnection::TakeTurn(const TcpService& service, Instant now) {
  budget_ = kQuantum;
  while (budget_ > 0) {
    Io io;
    if (answering_) {
      io = Send(service, now);
      if (io == Io::kDone && refuse_) return Turn::kClose;
    } else if (input_used_ >= wire::kTcpRequestBytes) {
      io = TakeRequest(service, now) ? Io::kDone : Io::kFailed;
    } else {
      io = Receive();
    }
    if (io == Io::kBlocked) return Turn::kBlocked;
    if (io == Io::kFailed) return Turn::kClose;
  }
  return Turn::kAgain;
}

TcpServedConnection::Io TcpServedConnection::Receive() {
  if (!readable_) return Io::kBlocked;
  const size_t room = input_.size() - input_used_;
  const ssize_t n = ::recv(fd_.get(), input_.data() + input_used_, room, MSG_DONTWAIT);
  if (n > 0) {
    input_used_ += static_cast<size_t>(n);
    // A short read emptied the socket, and new bytes make a new edge; but an end that epoll has
    // already told of makes none.
    if (static_cast<size_t>(n) < room && !hung_up_) readable_ = false;
    return Io::kDone;
  }
  if (n == 0) {
    if (input_used_ > 0) {
      status_ =
          MakeError(Reason::kProtocol, StrCat("the reader closed after ", input_used_, " of the ",
                                              wire::kTcpRequestBytes, " bytes of a request"));
    }
    return Io::kFailed;
  }
  if (errno == EINTR) return Io::kDone;
  if (errno != EAGAIN && errno != EWOULDBLOCK) return Io::kFailed;
  readable_ = false;
  return Io::kBlocked;
}

bool TcpServedConnection::TakeRequest(const TcpService& service, Instant now) {
  const absl::StatusOr<wire::TcpRequest> request =
      wire::DecodeTcpRequest(std::span(input_).first<wire::kTcpRequestBytes>());
  if (!request.ok()) {
    status_ = request.status();
    return false;
  }
  input_used_ -= wire::kTcpRequestBytes;
  std::memmove(input_.data(), input_.data() + wire::kTcpRequestBytes, input_used_);
  budget_ -= kMessageCost;
  switch (request->kind) {
    case wire::TcpRequest::Kind::kDone:
      if (request->instance == service.instance) service.leases->Done(request->lease);
      return true;
    case wire::TcpRequest::Kind::kRead:
      Answer(service, *request);
      stalled_at_ = SaturatingAdd(now, service.stall_timeout);
      deadline_ = request->deadline_ms == 0
                      ? kNever
                      : SaturatingAdd(now, std::chrono::milliseconds(request->deadline_ms));
      return true;
    case wire::TcpRequest::Kind::kLocate:
      status_ = MakeError(Reason::kProtocol, "a request of kind locate, which is ucx's alone");
      return false;
  }
  return false;
}

void TcpServedConnection::Answer(const TcpService& service, const wire::TcpRequest& request) {
  wire::TcpAnswer answer = {.request = request.request};
  std::optional<Reason> refusal;
  if (refuse_) {
    refusal = Reason::kBusy;
  } else if (request.instance != service.instance) {
    refusal = Reason::kWrongInstance;
  } else {
    absl::StatusOr<PinnedBytes> opened =
        service.leases->Open(request.lease, request.offset, request.length);
    if (opened.ok()) {
      payload_ = *std::move(opened);
      answer.length = payload_.bytes().size();
    } else {
      refusal = ReasonOf(opened.status()).value_or(Reason::kSystem);
    }
  }
  if (refusal.has_value()) answer.status = static_cast<uint16_t>(*refusal);
  header_ = wire::EncodeTcpAnswer(answer);
  sent_ = 0;
  lease_ = request.lease.id;
  answering_ = true;
}

TcpServedConnection::Io TcpServedConnection::Send(const TcpService& service, Instant now) {
  if (!writable_) return Io::kBlocked;
  const std::span<const std::byte> payload = payload_.bytes();
  iovec parts[2];
  size_t count = 0;
  size_t asked = 0;
  if (sent_ < header_.size()) {
    parts[count++] = {header_.data() + sent_, header_.size() - sent_};
    asked += header_.size() - sent_;
  }
  const uint64_t at = sent_ < header_.size() ? 0 : sent_ - header_.size();
  if (at < payload.size()) {
    const size_t piece = std::min<uint64_t>(payload.size() - at, static_cast<uint64_t>(budget_));
    parts[count++] = {const_cast<std::byte*>(payload.data()) + at, piece};
    asked += piece;
  }
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  const ssize_t n = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n < 0) {
    if (errno == EINTR) return Io::kDone;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return Io::kFailed;
    writable_ = false;
    return Io::kBlocked;
  }
  sent_ += static_cast<uint64_t>(n);
  budget_ -= n;
  stalled_at_ = SaturatingAdd(now, service.stall_timeout);
  if (sent_ == header_.size() + payload.size()) {
    payload_.Reset();
    answering_ = false;
    return Io::kDone;
  }
  if (static_cast<size_t>(n) < asked) {
    writable_ = false;
    return Io::kBlocked;
  }
  return Io::kDone;
}

std::string TcpServedConnection::Describe() const {
  if (!answering_) return peer_.ToString();
  return StrCat(peer_.ToString(), ", lease ", lease_, ": ",
                sent_ < header_.size() ? 0 : sent_ - header_.size(), " of ",
                payload_.bytes().size(), " bytes taken");
}

}  // namespace tensorferry::engine
