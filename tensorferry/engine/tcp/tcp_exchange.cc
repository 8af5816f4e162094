#include "tensorferry/engine/tcp/tcp_exchange.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry::engine {
namespace {

// What is left, rounded up: the gateway must not give up before we do. 0 would mean no deadline.
uint32_t MillisecondsLeft(Instant deadline, Instant now) {
  if (deadline == kNever) return 0;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
  return static_cast<uint32_t>(std::clamp<int64_t>(ms, 1, std::numeric_limits<uint32_t>::max()));
}

bool WouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

TcpExchange::TcpExchange(TcpConnectionPool* pool, Task task)
    : pool_(pool), task_(std::move(task)), move_on_(Instant::min()) {}

TcpExchange::Progress TcpExchange::Step(Instant now) {
  switch (state_) {
    case State::kDialing:
      return Dial(now);
    case State::kAsking:
      return Ask();
    case State::kReceiving:
      return Receive();
    case State::kDone:
      break;
  }
  return Progress::kDone;
}

void TcpExchange::AddWaits(std::vector<pollfd>* waits, Instant* wake) const {
  switch (state_) {
    case State::kDialing:
      if (dial_.fd() < 0) {
        *wake = Instant::min();
        return;
      }
      waits->push_back({.fd = dial_.fd(), .events = POLLOUT, .revents = 0});
      *wake = std::min({*wake, dial_.gives_up(), move_on_});
      return;
    case State::kAsking:
      waits->push_back({.fd = connection_.fd(), .events = POLLOUT, .revents = 0});
      return;
    case State::kReceiving:
      waits->push_back({.fd = connection_.fd(), .events = POLLIN, .revents = 0});
      return;
    case State::kDone:
      return;
  }
}

TcpExchange::Progress TcpExchange::Dial(Instant now) {
  if (move_on_ == Instant::min()) {
    // An address that swallows packets must leave time for the next.
    const bool last = at_ + 1 == task_.addresses.size();
    move_on_ = last || task_.deadline == kNever ? kNever : now + (task_.deadline - now) / 2;
  }
  absl::StatusOr<std::optional<TcpConnection>> got = pool_->Get(gateway(), fresh_, now, &dial_);
  if (!got.ok()) return AddressFailed(got.status());
  if (!got->has_value()) {
    if (now < move_on_) return Progress::kIdle;
    return AddressFailed(MakeError(Reason::kUnreachable, StrCat("no connection to the gateway at ",
                                                                gateway().ToString(), " yet")));
  }
  connection_ = **std::move(got);
  wire::TcpRequest request = task_.request;
  request.deadline_ms = MillisecondsLeft(task_.deadline, now);
  request_ = wire::EncodeTcpRequest(request);
  asked_ = 0;
  header_used_ = 0;
  received_ = 0;
  state_ = State::kAsking;
  return Ask();
}

TcpExchange::Progress TcpExchange::Ask() {
  const ssize_t n = ::send(connection_.fd(), request_.data() + asked_, request_.size() - asked_,
                           MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n < 0) {
    if (errno == EINTR) return Progress::kMoved;
    if (WouldBlock(errno)) return Progress::kIdle;
    return ConnectionFailed(
        MakeError(Reason::kPeerClosed,
                  StrCat(Subject(), ": the request could not be sent: ", std::strerror(errno))));
  }
  asked_ += static_cast<size_t>(n);
  if (asked_ == request_.size()) state_ = State::kReceiving;
  return Progress::kMoved;
}

TcpExchange::Progress TcpExchange::Receive() {
  const size_t header_left = header_.size() - header_used_;
  const size_t payload_left = task_.into.size() - received_;
  ssize_t n;
  if (header_left == 0) {
    n = ::recv(connection_.fd(), task_.into.data() + received_, payload_left, MSG_DONTWAIT);
  } else {
    iovec parts[] = {{header_.data() + header_used_, header_left},
                     {task_.into.data(), payload_left}};
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = payload_left == 0 ? 1 : 2;
    n = ::recvmsg(connection_.fd(), &message, MSG_DONTWAIT);
  }
  if (n < 0 && errno == EINTR) return Progress::kMoved;
  if (n < 0 && WouldBlock(errno)) return Progress::kIdle;
  if (n <= 0) {
    const absl::Status closed = MakeError(
        Reason::kPeerClosed,
        StrCat(Subject(), ": the gateway ended the connection after ", received_, " of ",
               task_.into.size(), " bytes", n < 0 ? ": " : "", n < 0 ? std::strerror(errno) : ""));
    if (header_left > 0) return ConnectionFailed(closed);
    connection_.Close();
    return Finish(closed);
  }
  const size_t to_header = std::min(static_cast<size_t>(n), header_left);
  header_used_ += to_header;
  if (header_used_ < header_.size()) return Progress::kMoved;
  if (header_left > 0) {
    if (const Progress p = TakeHeader(); state_ != State::kReceiving) return p;
  }
  received_ += static_cast<size_t>(n) - to_header;
  return received_ == task_.into.size() ? Finish(absl::OkStatus()) : Progress::kMoved;
}

TcpExchange::Progress TcpExchange::TakeHeader() {
  const absl::StatusOr<wire::TcpAnswer> answer = wire::DecodeTcpAnswer(header_);
  if (!answer.ok()) return ConnectionFailed(Annotate(answer.status(), Subject()));
  if (answer->request != task_.request.request) {
    return ConnectionFailed(
        MakeError(Reason::kProtocol, StrCat(Subject(), ": the answer is to request ",
                                            answer->request, ", not ", task_.request.request)));
  }
  if (answer->status == 0) {
    if (answer->length == task_.into.size()) return Progress::kMoved;
    return ConnectionFailed(MakeError(
        Reason::kProtocol,
        StrCat(Subject(), ": the answer has ", answer->length, " bytes, not ", task_.into.size())));
  }
  const std::optional<Reason> reason = ReasonFromNumber(answer->status);
  const absl::Status refusal =
      MakeError(reason.value_or(Reason::kProtocol),
                StrCat(Subject(), ", ", task_.into.size(), " bytes from ", task_.request.offset,
                       ": the gateway refused: ",
                       reason.has_value() ? ReasonMeaning(*reason) : "a reason unknown here", " (",
                       answer->status, ")"));
  if (reason == Reason::kWrongInstance) return ConnectionFailed(refusal);
  if (reason == Reason::kBusy) connection_.Close();
  return Finish(refusal);
}

// Before an answer that makes sense: a fresh connection may do better, then another address.
TcpExchange::Progress TcpExchange::ConnectionFailed(const absl::Status& why) {
  const bool was_idle = connection_.cached();
  connection_.Close();
  if (!was_idle || fresh_) return AddressFailed(why);
  pool_->CountReconnect();
  pool_->Distrust(gateway());
  fresh_ = true;
  state_ = State::kDialing;
  return Progress::kMoved;
}

TcpExchange::Progress TcpExchange::AddressFailed(const absl::Status& why) {
  dial_.Reset();
  // What a gateway said tells more than that another address is silent.
  if (failure_.ok() || ReasonOf(failure_) == Reason::kUnreachable) failure_ = why;
  if (at_ + 1 == task_.addresses.size()) return Finish(failure_);
  ++at_;
  fresh_ = false;
  move_on_ = Instant::min();
  state_ = State::kDialing;
  return Progress::kMoved;
}

void TcpExchange::GiveUp() {
  if (state_ == State::kDone) return;
  // Silence from the first byte on: the idle connections may lead nowhere as well.
  if (connection_ && connection_.cached() && header_used_ == 0) pool_->Distrust(gateway());
  connection_.Close();
  Finish(MakeError(Reason::kTimedOut, Subject()));
}

TcpExchange::Progress TcpExchange::Finish(const absl::Status& status) {
  status_ = status;
  state_ = State::kDone;
  dial_.Reset();
  return Progress::kDone;
}

std::string TcpExchange::Subject() const {
  return StrCat("lease ", task_.request.lease.id, " of the gateway at ", gateway().ToString());
}

}  // namespace tensorferry::engine
