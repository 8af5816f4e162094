// Pullers for tests.
//
//   const auto puller = MakePuller();                                   // 8 MiB to land in
//   const auto failing = FaultyPuller("tcp", [](const auto&) { return Failing(Reason::kTimedOut); });
//   EXPECT_TRUE(puller->Pull(HandleOf(lease, kRemote), PatientOptions()).ok());
//
// Thread-safety: pure functions.
#ifndef TENSORFERRY_PULLER_PULLER_TESTING_H_
#define TENSORFERRY_PULLER_PULLER_TESTING_H_

#include <functional>
#include <memory>
#include <string>

#include "tensorferry/engine/fault/fault.h"
#include "tensorferry/exporter/exporter.h"
#include "tensorferry/puller/puller.h"

namespace tensorferry {

inline constexpr Lease::Ways kShm{.shm = true, .remote = false};
inline constexpr Lease::Ways kRemote{.shm = false, .remote = true};

// Long enough for a loaded machine under a sanitizer; no pull that succeeds waits for it.
PullOptions PatientOptions();

// `adjust` is called with the options before Create.
std::unique_ptr<Puller> MakePuller(const std::function<void(PullerOptions*)>& adjust = nullptr);
// Bends what the engine of `transport` does.
std::unique_ptr<Puller> FaultyPuller(const std::string& transport, const engine::PullFaults& plan);
engine::Fault Failing(Reason reason);

}  // namespace tensorferry

#endif  // TENSORFERRY_PULLER_PULLER_TESTING_H_
