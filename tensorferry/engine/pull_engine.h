// What every transport does on the worker's side: fetch the bytes of one lease.
//
// A pull is a PullOp, a small state machine that never blocks: whoever waits for it drives it, a
// thread inside Puller::Pull or the puller's own loop, by Step() and by polling what AddWaits()
// names. So a synchronous pull costs no hand-off between threads, and hundreds can be in flight on
// one thread.
//
//   std::unique_ptr<PullOp> op = engine->Start({.descriptor = d, .length = n, .into = span});
//   while (op->Step() != PullOp::Progress::kDone) { spin a little, then poll(op->AddWaits()); }
//   absl::StatusOr<Landed> landed = op->TakeResult();
//   op->Acknowledge();        // after the bytes were checked
//
// Destroying an op abandons it: after the destructor has returned, the engine writes no byte to
// `into`. An engine that cannot promise that (one-sided reads) keeps `into_owner` alive until it
// can.
// Thread-safety: engines from any thread; one op by one thread at a time.
#ifndef TENSORFERRY_ENGINE_PULL_ENGINE_H_
#define TENSORFERRY_ENGINE_PULL_ENGINE_H_

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/wire/descriptor.h"

namespace tensorferry::engine {

// Bytes that have arrived.
struct Landed {
  std::span<const std::byte> bytes = {};
  // Keeps borrowed memory readable; null when the bytes are in the request's own `into`.
  std::shared_ptr<const void> hold = {};
};

struct PullRequest {
  const wire::Descriptor* descriptor = nullptr;  // outlives the op
  uint64_t offset = 0;
  uint64_t length = 0;
  // `length` bytes, or empty: then an engine that borrows() returns a view, and any other fails. An
  // engine that borrows, given memory, copies into it.
  std::span<std::byte> into = {};
  // Keeps `into` mapped; may be null for the caller's own memory.
  std::shared_ptr<const void> into_owner = {};
  Instant deadline = kNever;
};

class PullOp {
 public:
  enum class Progress {
    kDone,   // the result is there
    kMoved,  // something happened: step again at once
    kIdle,   // nothing to do until something in AddWaits happens
  };

  virtual ~PullOp() = default;
  virtual Progress Step() = 0;
  // Appends what to poll for, and lowers *wake to the moment at which to step in any case.
  virtual void AddWaits(std::vector<pollfd>* waits, Instant* wake) const = 0;
  // Once, after kDone. Errors carry a Reason. The op itself ends with kTimedOut at its deadline.
  virtual absl::StatusOr<Landed> TakeResult() = 0;
  // The bytes were checked and are good: tell the gateway, if its descriptor wants to know. Best
  // effort, never blocks. For a borrowed result this has no effect: releasing `hold` tells it.
  virtual void Acknowledge() = 0;
};

class PullEngine {
 public:
  virtual ~PullEngine() = default;

  virtual std::string_view transport() const = 0;
  // OK when a pull of this descriptor may be tried: a way of our kind, allowed, not known to be
  // elsewhere. Cheap, does no network I/O. kNoCommonWay, kOtherHost, kUidMismatch, kNotAllowed,
  // kBadAddress.
  virtual absl::Status CanTry(const wire::Descriptor& descriptor) const = 0;
  // Can return a view of the gateway's own memory, so that no landing space is needed.
  virtual bool borrows() const = 0;
  // Goes over hardware that beats sockets, where the gateway prefers it too.
  virtual bool preferred() const { return false; }
  // Bytes that it also writes in front of `into` and behind it. Such an engine takes landing memory
  // only: what it was given by UseLanding.
  virtual uint64_t margin_bytes() const { return 0; }
  // All landing memory, once, before the first Start. `owner` keeps it mapped.
  virtual void UseLanding(std::span<std::byte>, const std::shared_ptr<const void>& /*owner*/) {}
  // This descriptor will not be pulled: tells a gateway that waits to hear of it. An op that was
  // started does so by itself. Never blocks, best effort.
  virtual void Decline(const wire::Descriptor&) {}
  // Never blocks and never fails: an op that cannot work is done with its error at the first Step.
  virtual std::unique_ptr<PullOp> Start(const PullRequest& request) = 0;
};

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_PULL_ENGINE_H_
