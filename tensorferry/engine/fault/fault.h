// What can be made to go wrong with one pull, for tests: a plan handed to the decorators of this
// folder.
//
//   options.wrap = [](auto inner) {
//     return WrapInFaults(std::move(inner), [](const PullRequest&) {
//       return Fault{.kind = Fault::Kind::kFail, .reason = Reason::kPeerClosed};
//     });
//   };
//
// The real engine runs underneath; only its outcome is bent. Deterministic: the plan decides,
// nothing is random.
// Thread-safety: a plan may be called from any thread.
#ifndef TENSORFERRY_ENGINE_FAULT_FAULT_H_
#define TENSORFERRY_ENGINE_FAULT_FAULT_H_

#include <functional>
#include <memory>

#include "tensorferry/base/clock.h"
#include "tensorferry/base/error.h"
#include "tensorferry/engine/export_engine.h"
#include "tensorferry/engine/pull_engine.h"

namespace tensorferry::engine {

struct Fault {
  enum class Kind {
    kNone,
    kDelay,  // begins `delay` later
    kFail,   // fails at once with `reason`
    kHang,   // gets nowhere until its deadline, or until it is given up
    kTear,   // arrives with one byte changed
    kKill,   // this process dies by SIGKILL when it begins
  };
  Kind kind = Kind::kNone;
  Duration delay = Duration::zero();
  Reason reason = Reason::kPeerClosed;
};

// On the worker's side: asked once for each op.
using PullFaults = std::function<Fault(const PullRequest&)>;
std::unique_ptr<PullEngine> WrapInFaults(std::unique_ptr<PullEngine> inner, PullFaults plan);

// On the gateway's side: asked once for each reader that opens a lease. kDelay blocks the engine's
// thread, as a stalled gateway would; kHang does nothing there; kTear hands out a copy with one
// byte changed.
using ExportFaults = std::function<Fault(const wire::LeaseRef&)>;
std::unique_ptr<ExportEngine> WrapInFaults(std::unique_ptr<ExportEngine> inner, ExportFaults plan);

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_FAULT_FAULT_H_
