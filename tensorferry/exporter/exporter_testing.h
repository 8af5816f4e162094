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
#include <vector>

#include "tensorferry/base/temp_dir_testing.h"
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

Handle HandleOf(const Lease& lease, Lease::Ways ways = {});

}  // namespace tensorferry

#endif  // TENSORFERRY_EXPORTER_EXPORTER_TESTING_H_
