#include "tensorferry/exporter/exporter.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/src/bindings.h"
#include "python/src/errors.h"
#include "python/src/memory.h"
#include "python/src/options.h"
#include "python/src/process.h"
#include "python/src/source.h"
#include "tensorferry/engine/nixl/nixl_export_engine.h"

namespace nb = nanobind;

namespace tensorferry::python {
namespace {

// A tensor of the arena in either of its states. Python's objects and all arrays of it share it, so that its memory
// is never used again under one of them.
struct Block {
  std::mutex mu;  // publishing lets the GIL go
  Staged staged;
  Lease lease;
};

Memory MemoryOf(const std::shared_ptr<Block>& block, std::span<const std::byte> bytes,
                bool readonly) {
  return Memory(bytes, readonly, block);
}

class PyLease {
 public:
  PyLease(std::shared_ptr<Exporter> exporter, std::shared_ptr<Block> block)
      : exporter_(std::move(exporter)), block_(std::move(block)) {}
  PyLease(PyLease&&) = default;
  PyLease& operator=(PyLease&&) = delete;
  ~PyLease() { Close(); }

  int64_t key() const { return Get().lease.key(); }
  uint64_t nbytes() const { return Get().lease.bytes().size(); }
  Memory Bytes() const { return MemoryOf(block_, Get().lease.bytes(), /*readonly=*/true); }
  // None: workers can fetch it.
  nb::object Error() const {
    const absl::Status& status = Get().lease.exported();
    return status.ok() ? nb::none() : ErrorObject(status);
  }
  nb::bytes Descriptor(bool shm, bool remote) const {
    const std::string bytes = ValueOrThrow(Get().lease.Descriptor({.shm = shm, .remote = remote}));
    return nb::bytes(bytes.data(), bytes.size());
  }
  nb::bytes SmgDescriptor() const {
    const std::string bytes = ValueOrThrow(Get().lease.SmgDescriptor());
    return nb::bytes(bytes.data(), bytes.size());
  }
  void ReadersAreDone() const { Get().lease.ReadersAreDone(); }

  void Detach() {
    std::move(Get().lease).Detach();
    block_.reset();
  }

  bool closed() const { return block_ == nullptr; }

  void Close() {
    if (block_ == nullptr || IsForked()) return;
    // An array of it keeps the memory, but no reader may begin any more.
    if (block_.use_count() > 1 && block_->lease.exported().ok()) {
      (void)exporter_->Cancel(block_->lease.key());
    }
    block_.reset();
  }

 private:
  Block& Get() const {
    RequireOwnProcess();
    if (block_ == nullptr) ThrowError(Reason::kLeaseEnded, "this lease was closed");
    return *block_;
  }

  std::shared_ptr<Exporter> exporter_;
  std::shared_ptr<Block> block_;
};

PublishOptions ToOptions(std::optional<int64_t> key, uint32_t readers, std::optional<double> ttl) {
  PublishOptions options{.key = key, .readers = readers};
  if (ttl) options.ttl = Seconds(*ttl);
  return options;
}

class PyStaged {
 public:
  PyStaged(std::shared_ptr<Exporter> exporter, std::shared_ptr<Block> block)
      : exporter_(std::move(exporter)), block_(std::move(block)) {}

  uint64_t nbytes() const { return Get().staged.bytes().size(); }
  bool in_arena() const { return Get().staged.in_arena(); }
  Memory Bytes() const { return MemoryOf(block_, Get().staged.bytes(), /*readonly=*/false); }

  PyLease Publish(std::optional<int64_t> key, uint32_t readers, std::optional<double> ttl) {
    Get();
    const PublishOptions options = ToOptions(key, readers, ttl);
    std::shared_ptr<Block> block = std::move(block_);
    block_.reset();
    {
      const NoGil nogil;
      const std::lock_guard<std::mutex> lock(block->mu);
      block->lease = std::move(block->staged).Publish(options);
    }
    return {exporter_, std::move(block)};
  }

  void Drop() { block_.reset(); }

 private:
  Block& Get() const {
    RequireOwnProcess();
    if (block_ == nullptr)
      ThrowError(Reason::kLeaseEnded, "this memory was published or given back");
    return *block_;
  }

  std::shared_ptr<Exporter> exporter_;
  std::shared_ptr<Block> block_;
};

class PyExporter {
 public:
  PyExporter(uint64_t arena_bytes, bool prefault, double lease_ttl, const std::string& listen,
             const std::vector<std::string>& advertise, const std::string& local_socket,
             uint32_t max_claim_percent, bool checksum, const std::string& nixl_listen,
             const std::string& nixl_advertise, const std::string& nixl_agent_name,
             const std::string& nixl_agent_program, const std::string& nixl_lib,
             const std::vector<std::string>& nixl_search) {
    RequireOwnProcess();
    ExporterOptions options{.arena_bytes = arena_bytes,
                            .prefault = prefault,
                            .lease_ttl = Seconds(lease_ttl),
                            .listen = listen,
                            .advertise = advertise,
                            .local_socket = local_socket,
                            .max_claim_percent = max_claim_percent,
                            .checksum = checksum,
                            .log = QueueLog()};
    const NoGil nogil;
    if (!nixl_listen.empty()) {
      engine::NixlExportOptions nixl{.library = {.dir = nixl_lib, .search = nixl_search},
                                     .listen = ValueOrThrow(SocketAddress::Parse(nixl_listen)),
                                     .agent_program = nixl_agent_program,
                                     .log = options.log};
      if (!nixl_advertise.empty()) {
        nixl.advertise = ValueOrThrow(SocketAddress::Parse(nixl_advertise));
      }
      if (!nixl_agent_name.empty()) nixl.agent_name = nixl_agent_name;
      auto agent = ValueOrThrow(engine::NixlExportEngine::Create(nixl));
      nixl_address_ = agent->address().ToString();
      options.engines.push_back(std::move(agent));
    }
    exporter_ =
        OwnedHere(std::shared_ptr<Exporter>(ValueOrThrow(Exporter::Create(std::move(options)))));
  }

  ~PyExporter() {
    const NoGil nogil;
    exporter_.reset();
  }

  PyStaged Stage(uint64_t nbytes) const {
    const std::shared_ptr<Exporter> exporter = Get();
    auto block = OwnedHere(std::make_shared<Block>());
    {
      const NoGil nogil;
      block->staged = exporter->Stage(nbytes);
    }
    if (block->staged.bytes().size() != nbytes) {
      ThrowError(Reason::kNoMemory,
                 StrCat("no memory for ", nbytes, " bytes, neither in the arena nor outside"));
    }
    return {exporter, std::move(block)};
  }

  // (lease, dtype, shape); the dtype is empty when it has no name that travels.
  nb::tuple Export(nb::handle object, bool copy, std::optional<int64_t> key, uint32_t readers,
                   std::optional<double> ttl) const {
    const std::shared_ptr<Exporter> exporter = Get();
    const Source source(object);
    if (!copy && !source.contiguous()) {
      ThrowError(Reason::kBadInput,
                 "the tensor is not contiguous in row-major order: make it so, or pass copy=True "
                 "to have it gathered");
    }
    PyStaged staged = Stage(source.nbytes());
    {
      const Memory memory = staged.Bytes();
      const std::span<std::byte> out(const_cast<std::byte*>(memory.bytes().data()),
                                     memory.bytes().size());
      const NoGil nogil;
      source.CopyTo(out);
    }
    return nb::make_tuple(nb::cast(staged.Publish(key, readers, ttl)), source.dtype(),
                          nb::tuple(nb::cast(source.shape())));
  }

  void Cancel(int64_t key) const {
    const std::shared_ptr<Exporter> exporter = Get();
    absl::Status status;
    {
      const NoGil nogil;
      status = exporter->Cancel(key);
    }
    ThrowIfError(status);
  }

  void Drain(double timeout) const {
    const std::shared_ptr<Exporter> exporter = Get();
    const RealClock clock;
    const Instant until = SaturatingAdd(clock.Now(), Seconds(timeout));
    // In parts, between which a signal's handler may raise.
    constexpr Duration kPart = std::chrono::milliseconds(50);
    absl::Status status;
    do {
      const NoGil nogil;
      status = exporter->Drain(std::clamp(until - clock.Now(), Duration::zero(), kPart));
    } while (!status.ok() && clock.Now() < until && PyErr_CheckSignals() == 0);
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    if (!status.ok()) {
      ThrowError(Reason::kTimedOut,
                 StrCat(exporter->stats().published, " leases are still readable after ", timeout,
                        " seconds of draining"));
    }
  }

  void Close() const {
    const std::shared_ptr<Exporter> exporter = Get();
    const NoGil nogil;
    exporter->Close();
  }

  void WaitPrefaulted() const {
    const std::shared_ptr<Exporter> exporter = Get();
    const NoGil nogil;
    exporter->WaitPrefaulted();
  }

  std::vector<std::string> Transports() const { return Get()->transports(); }
  std::string ListenAddress() const { return Get()->listen_address(); }
  const std::string& NixlAddress() const { return nixl_address_; }

  nb::dict Stats() const {
    const std::shared_ptr<Exporter> exporter = Get();
    const ExporterStats s = exporter->stats();
    nb::dict out;
    out["arena_bytes"] = s.arena_bytes;
    out["free_bytes"] = s.free_bytes;
    out["used_bytes"] = s.used_bytes;
    out["resting_bytes"] = s.resting_bytes;
    out["writing"] = s.writing;
    out["published"] = s.published;
    out["ended"] = s.ended;
    out["resting"] = s.resting;
    out["heap_fallbacks"] = s.heap_fallbacks;
    out["smg_epoch"] = exporter->smg_epoch();
    return out;
  }

 private:
  std::shared_ptr<Exporter> Get() const {
    RequireOwnProcess();
    return exporter_;
  }

  std::shared_ptr<Exporter> exporter_;
  std::string nixl_address_;
};

}  // namespace

void BindExporter(nb::module_& module) {
  nb::class_<PyLease>(module, "Lease")
      .def_prop_ro("key", &PyLease::key)
      .def_prop_ro("nbytes", &PyLease::nbytes)
      .def_prop_ro("error", &PyLease::Error)
      .def_prop_ro("closed", &PyLease::closed)
      .def("memory", &PyLease::Bytes)
      .def("descriptor", &PyLease::Descriptor, nb::arg("shm"), nb::arg("remote"))
      .def("smg_descriptor", &PyLease::SmgDescriptor)
      .def("readers_are_done", &PyLease::ReadersAreDone)
      .def("detach", &PyLease::Detach)
      .def("close", &PyLease::Close);
  nb::class_<PyStaged>(module, "Staged")
      .def_prop_ro("nbytes", &PyStaged::nbytes)
      .def_prop_ro("in_arena", &PyStaged::in_arena)
      .def("memory", &PyStaged::Bytes)
      .def("publish", &PyStaged::Publish, nb::arg("key").none(), nb::arg("readers"),
           nb::arg("ttl").none())
      .def("drop", &PyStaged::Drop);
  nb::class_<PyExporter>(module, "Exporter")
      .def(nb::init<uint64_t, bool, double, const std::string&, const std::vector<std::string>&,
                    const std::string&, uint32_t, bool, const std::string&, const std::string&,
                    const std::string&, const std::string&, const std::string&,
                    const std::vector<std::string>&>(),
           nb::arg("arena_bytes"), nb::arg("prefault"), nb::arg("lease_ttl"), nb::arg("listen"),
           nb::arg("advertise"), nb::arg("local_socket"), nb::arg("max_claim_percent"),
           nb::arg("checksum"), nb::arg("nixl_listen"), nb::arg("nixl_advertise"),
           nb::arg("nixl_agent_name"), nb::arg("nixl_agent_program"), nb::arg("nixl_lib"),
           nb::arg("nixl_search"))
      .def("stage", &PyExporter::Stage, nb::arg("nbytes"))
      .def("export", &PyExporter::Export, nb::arg("tensor"), nb::arg("copy"), nb::arg("key").none(),
           nb::arg("readers"), nb::arg("ttl").none())
      .def("cancel", &PyExporter::Cancel, nb::arg("key"))
      .def("drain", &PyExporter::Drain, nb::arg("timeout"))
      .def("close", &PyExporter::Close)
      .def("wait_prefaulted", &PyExporter::WaitPrefaulted)
      .def("transports", &PyExporter::Transports)
      .def("listen_address", &PyExporter::ListenAddress)
      .def("nixl_address", &PyExporter::NixlAddress)
      .def("stats", &PyExporter::Stats);
}

}  // namespace tensorferry::python
