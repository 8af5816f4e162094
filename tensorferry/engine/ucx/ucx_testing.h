// For tests that need the module of engine/ucx: over UCX's tcp, on the loopback interface.
//
//   const auto ucx = UcxForTest();
//   if (!ucx) GTEST_SKIP() << kNoUcx;
//   UcxGateway gateway(*ucx, {.instance = 1});
//   std::unique_ptr<PullEngine> puller = UcxPullerForTest(*ucx);
//
// Thread-safety: none.
#ifndef TENSORFERRY_ENGINE_UCX_UCX_TESTING_H_
#define TENSORFERRY_ENGINE_UCX_UCX_TESTING_H_

#include <memory>
#include <string>
#include <vector>

#include "tensorferry/engine/engine_testing.h"
#include "tensorferry/engine/ucx/ucx_module.h"

namespace tensorferry::engine {

inline constexpr char kNoUcx[] =
    "no UCX when this was built, so that engine/ucx is NOT tested: install libucx-dev and run "
    "cmake "
    "again";

// Of this build.
std::string UcxModulePathForTest();
// Null where there is none; aborts when it is there and does not load.
std::shared_ptr<const UcxModule> UcxForTest();

// Leases, and the engine that serves them.
struct UcxGateway {
  UcxGateway(const UcxModule& ucx, const FakeLeaseSource::Options& source,
             const UcxExportOptions& options);
  UcxGateway(const UcxModule& ucx, const FakeLeaseSource::Options& source);

  wire::Descriptor DescriptorOf(const PublishedLease& lease) const {
    return leases.DescriptorOf(lease, {engine->way()});
  }
  bool Unpinned() const {
    return leases.WaitUntil([this] { return leases.pins() == 0; });
  }

  FakeLeaseSource leases;
  std::unique_ptr<UcxExportEngine> engine;
};

// One pull that can be left lying in the middle.
struct UcxTransfer {
  UcxTransfer(PullEngine& engine, const wire::Descriptor& d, Instant deadline = kNever);
  // Until the first bytes are there. False if by then it is over: another thread carries it on.
  bool Begin();

  wire::Descriptor descriptor;
  std::vector<std::byte> into;
  std::unique_ptr<PullOp> op;
};

// A pull that is in the middle: as often as it takes to catch one there. Null if none was.
std::unique_ptr<UcxTransfer> InMidTransfer(PullEngine& engine, const wire::Descriptor& d,
                                           Duration limit = std::chrono::hours(1));

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_UCX_UCX_TESTING_H_
