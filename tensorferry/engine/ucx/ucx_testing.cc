#include "tensorferry/engine/ucx/ucx_testing.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tensorferry/engine/ucx/ucx_abi.h"

namespace tensorferry::engine {

std::string UcxModulePathForTest() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "lib/tensorferry" /
         kUcxModuleFile;
}

std::shared_ptr<const UcxModule> UcxForTest() {
  if (!std::filesystem::exists(UcxModulePathForTest())) return nullptr;
  auto module = UcxModule::Open({.path = UcxModulePathForTest()});
  if (!module.ok()) {
    std::fprintf(stderr, "%s\n", module.status().ToString().c_str());
    std::abort();
  }
  return *module;
}

UcxGateway::UcxGateway(const UcxModule& ucx, const FakeLeaseSource::Options& source,
                       const UcxExportOptions& options)
    : leases(source) {
  auto created = ucx.CreateExport(options);
  absl::Status status = created.status();
  if (created.ok()) status = (*created)->Start(leases.arena(), &leases);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::abort();
  }
  engine = *std::move(created);
}

UcxGateway::UcxGateway(const UcxModule& ucx, const FakeLeaseSource::Options& source)
    : UcxGateway(ucx, source, {.listen = *SocketAddress::Parse("127.0.0.1:0")}) {}

void UcxTransfer::Start(PullEngine& engine, Instant deadline) {
  op = engine.Start({.descriptor = &descriptor,
                     .offset = 0,
                     .length = into.size(),
                     .into = into,
                     .deadline = deadline});
}

namespace {

// Looks at memory that UCX is writing, which TSan would say.
__attribute__((no_sanitize("thread"))) bool NothingYet(const volatile std::byte* first) {
  for (size_t i = 0; i < 64; ++i) {
    if (first[i] != std::byte{0}) return false;
  }
  return true;
}

}  // namespace

bool UcxTransfer::Begin() {
  while (NothingYet(into.data())) {
    if (op->Step() == PullOp::Progress::kDone) return false;
  }
  return op->Step() != PullOp::Progress::kDone;
}

std::unique_ptr<UcxTransfer> InMidTransfer(PullEngine& engine, const wire::Descriptor& d,
                                           Duration limit) {
  const Instant end = SaturatingAdd(RealClock().Now(), kTestLimit);
  while (RealClock().Now() < end) {
    auto transfer =
        std::make_unique<UcxTransfer>(engine, d, SaturatingAdd(RealClock().Now(), limit));
    if (transfer->Begin()) return transfer;
  }
  return nullptr;
}

}  // namespace tensorferry::engine
