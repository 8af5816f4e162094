// An exporter with a socket directory of its own, and patterns to fill tensors with.
//
//   ExporterForTest gateway;                       // local and tcp on loopback
//   Lease lease = gateway->Export(Pattern(1 << 20, /*seed=*/7), {});
//   Handle handle = HandleOf(lease);
//
// Ownership: the directory goes with the object.
#ifndef TENSORFERRY_EXPORTER_EXPORTER_TESTING_H_
#define TENSORFERRY_EXPORTER_EXPORTER_TESTING_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tensorferry/base/temp_dir_testing.h"
#include "tensorferry/engine/export_engine.h"
#include "tensorferry/exporter/exporter.h"
#include "tensorferry/puller/puller.h"

namespace tensorferry {

// Bytes that depend on every position and on the seed.
std::vector<std::byte> Pattern(size_t nbytes, uint64_t seed);

class ExporterForTest {
 public:
  // Called with the defaults (8 MiB, local, tcp on a free loopback port) before Create.
  using Adjust = std::function<void(ExporterOptions*)>;
  explicit ExporterForTest(const Adjust& adjust = nullptr);
  Exporter* operator->() const { return exporter_.get(); }
  Exporter& operator*() const { return *exporter_; }
  void Reset() { exporter_.reset(); }
  // Another process's worth of exporter at the same addresses.
  void Restart();

 private:
  void Create(std::string listen);
  TempDir dir_;
  Adjust adjust_;
  std::unique_ptr<Exporter> exporter_;
};

// An engine like nixl's: its readers read by themselves, and it hears of leases when a descriptor is
// made.
//
//   OneSidedEngine* engine = nullptr;
//   ExporterForTest gateway(OneSidedEngine::Into(&engine));
class OneSidedEngine final : public engine::ExportEngine {
 public:
  // Adds one to the options; it belongs to the exporter, and lives as long.
  static ExporterForTest::Adjust Into(OneSidedEngine** self);

  std::string_view transport() const override { return "nixl"; }
  absl::Status Start(const engine::ArenaView& view, engine::LeaseSource* source) override;
  wire::Way way() const override;
  void Publish(const engine::PublishedLease& lease) override { published.push_back(lease.ref); }
  bool Retire(const wire::LeaseRef& ref) override;
  bool one_sided() const override { return true; }
  bool for_smg() const override { return true; }
  uint64_t epoch() const override { return agents_started; }

  uint64_t StampAt(uint64_t address) const;

  engine::ArenaView arena;
  engine::LeaseSource* leases = nullptr;
  std::vector<wire::LeaseRef> published;
  std::vector<uint64_t> retired;
  uint64_t agents_started = 1;
};

Handle HandleOf(const Lease& lease, Lease::Ways ways = {});

}  // namespace tensorferry

#endif  // TENSORFERRY_EXPORTER_EXPORTER_TESTING_H_
