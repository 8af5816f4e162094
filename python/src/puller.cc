#include "tensorferry/puller/puller.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
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
#include "tensorferry/engine/nixl/nixl_pull_engine.h"
#include "tensorferry/worker/describe.h"

namespace nb = nanobind;

namespace tensorferry::python {
namespace {

Handle ToHandle(const nb::tuple& parts) {
  const auto descriptor = nb::cast<nb::bytes>(parts[1]);
  return {.transport = nb::cast<std::string>(parts[0]),
          .descriptor = std::string(descriptor.c_str(), descriptor.size()),
          .nbytes = nb::cast<uint64_t>(parts[2]),
          .offset = nb::cast<uint64_t>(parts[3])};
}

PullOptions ToOptions(double timeout, const Cancellation* cancel, std::optional<int64_t> key) {
  return {.timeout = Seconds(timeout),
          .cancel = cancel == nullptr ? Cancellation() : *cancel,
          .key = key};
}

// Memory that a pull writes to; let go in any thread.
class Target {
 public:
  explicit Target(nb::handle object)
      : source_(std::make_unique<Source>(object, Source::Use::kWrite)) {
    if (!source_->contiguous()) {
      ThrowError(Reason::kBadInput, "the memory is not contiguous in row-major order");
    }
  }
  ~Target() {
    WithGil([this] { source_.reset(); });
    (void)source_.release();  // where there is no GIL any more
  }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
  std::span<std::byte> bytes() const { return source_->bytes(); }

 private:
  std::unique_ptr<Source> source_;
};

// Of a call that waits here: Ctrl-C, and what else a signal's handler raises, ends it.
PullOptions ToWaitingOptions(double timeout, const Cancellation* cancel,
                             std::optional<int64_t> key) {
  PullOptions options = ToOptions(timeout, cancel, key);
  options.interrupted = &InterruptedBySignal;
  return options;
}

void ThrowIfInterrupted() {
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
}

// Calls `callback(result, error)`, one of which is None.
void Answer(const std::shared_ptr<PyHold>& callback, const absl::Status& status,
            const std::function<nb::object()>& result) {
  WithGil([&] {
    try {
      nb::object value = nb::none();
      nb::object error = nb::none();
      if (status.ok()) {
        value = result();
      } else {
        error = ErrorObject(status);
      }
      Call(callback->get(), nb::make_tuple(value, error));
    } catch (nb::python_error& e) {
      e.discard_as_unraisable("tensorferry: the end of an asynchronous pull");
    }
  });
}

class PyPuller {
 public:
  PyPuller(const std::vector<std::string>& allow, uint64_t landing_bytes, bool prefault, bool local,
           bool tcp, bool shm_files, bool unlink_files, const std::vector<uint32_t>& allowed_uids,
           uint32_t async_threads, bool nixl, const std::string& nixl_lib,
           const std::vector<std::string>& nixl_search, const std::string& gateway_agent_name) {
    RequireOwnProcess();
    PullerOptions options{.allow = ValueOrThrow(AllowList::Parse(allow)),
                          .landing_bytes = landing_bytes,
                          .prefault = prefault,
                          .local = local,
                          .tcp = tcp,
                          .async_threads = async_threads,
                          .log = QueueLog()};
    if (shm_files) {
      options.file.emplace();
      options.file->unlink = unlink_files;
      options.file->allowed_uids = allowed_uids;
    }
    const NoGil nogil;
    if (nixl) {
      options.engines.push_back(ValueOrThrow(engine::CreateNixlPullEngine(
          ValueOrThrow(engine::NixlLibrary::Open({.dir = nixl_lib, .search = nixl_search})),
          {.allow = options.allow, .gateway_agent_name = gateway_agent_name, .log = options.log})));
    }
    puller_ = OwnedHere(std::shared_ptr<Puller>(ValueOrThrow(Puller::Create(std::move(options)))));
  }

  ~PyPuller() {
    const NoGil nogil;
    puller_.reset();
  }

  Memory Pull(const nb::tuple& handle, double timeout, const Cancellation* cancel,
              std::optional<int64_t> key, std::optional<double> landing_timeout) const {
    const std::shared_ptr<Puller> puller = Get();
    const Handle parts = ToHandle(handle);
    PullOptions options = ToWaitingOptions(timeout, cancel, key);
    if (landing_timeout) options.landing_timeout = Seconds(*landing_timeout);
    absl::StatusOr<View> view;
    {
      const NoGil nogil;
      view = puller->Pull(parts, options);
    }
    ThrowIfInterrupted();
    return Memory::OfView(ValueOrThrow(std::move(view)));
  }

  std::string PullInto(const nb::tuple& handle, nb::handle into, double timeout,
                       const Cancellation* cancel, std::optional<int64_t> key) const {
    const std::shared_ptr<Puller> puller = Get();
    const Handle parts = ToHandle(handle);
    const PullOptions options = ToWaitingOptions(timeout, cancel, key);
    const Target target(into);
    absl::StatusOr<PulledInto> pulled;
    {
      const NoGil nogil;
      pulled = puller->PullInto(parts, target.bytes(), options);
    }
    ThrowIfInterrupted();
    return std::string(ValueOrThrow(std::move(pulled)).transport);
  }

  // One key for each handle, or none at all.
  nb::list PullAll(const nb::list& handles, double timeout, const Cancellation* cancel,
                   const std::vector<std::optional<int64_t>>& keys) const {
    const std::shared_ptr<Puller> puller = Get();
    std::vector<Handle> parts;
    for (const nb::handle handle : handles) parts.push_back(ToHandle(nb::cast<nb::tuple>(handle)));
    const PullOptions options = ToWaitingOptions(timeout, cancel, std::nullopt);
    std::vector<absl::StatusOr<View>> views;
    {
      const NoGil nogil;
      views = puller->PullAll(parts, options, keys);
    }
    ThrowIfInterrupted();
    nb::list out;
    for (absl::StatusOr<View>& view : views) {
      out.append(view.ok() ? nb::cast(Memory::OfView(*view)) : ErrorObject(view.status()));
      view = absl::StatusOr<View>();
    }
    return out;
  }

  void PullAsync(const nb::tuple& handle, double timeout, const Cancellation* cancel,
                 std::optional<int64_t> key, nb::object callback) const {
    const std::shared_ptr<Puller> puller = Get();
    const Handle parts = ToHandle(handle);
    const PullOptions options = ToOptions(timeout, cancel, key);
    auto hold = std::make_shared<PyHold>(callback.release().ptr());
    const NoGil nogil;
    puller->PullAsync(parts, options, [hold = std::move(hold)](absl::StatusOr<View> view) {
      Answer(hold, view.status(), [&] { return nb::cast(Memory::OfView(*view)); });
    });
  }

  void PullIntoAsync(const nb::tuple& handle, nb::handle into, double timeout,
                     const Cancellation* cancel, std::optional<int64_t> key,
                     nb::object callback) const {
    const std::shared_ptr<Puller> puller = Get();
    const Handle parts = ToHandle(handle);
    const PullOptions options = ToOptions(timeout, cancel, key);
    auto target = std::make_shared<Target>(into);
    auto hold = std::make_shared<PyHold>(callback.release().ptr());
    const std::span<std::byte> bytes = target->bytes();
    const NoGil nogil;
    puller->PullIntoAsync(parts, bytes, options,
                          [hold = std::move(hold),
                           target = std::move(target)](absl::StatusOr<PulledInto> pulled) mutable {
                            target.reset();
                            Answer(hold, pulled.status(),
                                   [&] { return nb::cast(std::string(pulled->transport)); });
                          });
  }

  void Decline(const nb::tuple& handle) const {
    const std::shared_ptr<Puller> puller = Get();
    const Handle parts = ToHandle(handle);
    const NoGil nogil;
    puller->Decline(parts);
  }

  void Close() const {
    RequireOwnProcess();
    const std::shared_ptr<Puller> puller = puller_;
    const NoGil nogil;
    puller->Close();
  }

  // `self` may be null: this process fetches nothing.
  static nb::dict Describe(const PyPuller* self, uint64_t max_message_bytes) {
    const Capabilities told =
        DescribeWorker(self == nullptr ? nullptr : self->Get().get(), max_message_bytes);
    const auto bytes = [](const auto& of) {
      return nb::bytes(reinterpret_cast<const char*>(of.data()), of.size());
    };
    nb::list lanes;
    for (const Lane lane : told.lanes) lanes.append(std::string(LaneName(lane)));
    nb::dict out;
    out["version"] = told.version;
    out["instance_id"] = bytes(told.instance_id);
    out["lanes"] = nb::tuple(lanes);
    out["transports"] = nb::tuple(nb::cast(told.transports));
    out["landing_bytes"] = told.landing_bytes;
    out["max_inline_bytes"] = told.max_inline_bytes;
    out["boot_id"] = told.host.boot_id == BootId{} ? nb::bytes("", 0) : bytes(told.host.boot_id);
    out["shm_namespace"] = told.host.shm_namespace;
    out["uid"] = told.host.uid ? nb::cast(*told.host.uid) : nb::none();
    out["descriptor_versions"] = nb::tuple(nb::cast(told.descriptor_versions));
    return out;
  }

  std::vector<std::string> Transports() const { return Get()->transports(); }
  nb::dict Stats() const {
    const PullerStats stats = Get()->stats();
    nb::dict out;
    out["landing_bytes"] = stats.landing_bytes;
    out["landing_used_bytes"] = stats.landing_used_bytes;
    out["waiting_for_landing"] = stats.waiting_for_landing;
    return out;
  }

 private:
  // A share of it, so that it outlives the call whatever other threads do.
  std::shared_ptr<Puller> Get() const {
    RequireOwnProcess();
    return puller_;
  }

  std::shared_ptr<Puller> puller_;
};

}  // namespace

void BindPuller(nb::module_& module) {
  nb::class_<Cancellation>(module, "Cancellation")
      .def("__init__", [](Cancellation* self) { new (self) Cancellation(Cancellation::Create()); })
      .def("cancel", &Cancellation::Cancel)
      .def("cancelled", &Cancellation::cancelled);
  nb::class_<PyPuller>(module, "Puller")
      .def(nb::init<const std::vector<std::string>&, uint64_t, bool, bool, bool, bool, bool,
                    const std::vector<uint32_t>&, uint32_t, bool, const std::string&,
                    const std::vector<std::string>&, const std::string&>(),
           nb::arg("allow"), nb::arg("landing_bytes"), nb::arg("prefault"), nb::arg("local"),
           nb::arg("tcp"), nb::arg("shm_files"), nb::arg("unlink_files"), nb::arg("allowed_uids"),
           nb::arg("async_threads"), nb::arg("nixl"), nb::arg("nixl_lib"), nb::arg("nixl_search"),
           nb::arg("gateway_agent_name"))
      .def("pull", &PyPuller::Pull, nb::arg("handle"), nb::arg("timeout"), nb::arg("cancel").none(),
           nb::arg("key").none(), nb::arg("landing_timeout").none())
      .def("pull_into", &PyPuller::PullInto, nb::arg("handle"), nb::arg("into"), nb::arg("timeout"),
           nb::arg("cancel").none(), nb::arg("key").none())
      .def("pull_all", &PyPuller::PullAll, nb::arg("handles"), nb::arg("timeout"),
           nb::arg("cancel").none(), nb::arg("keys"))
      .def("pull_async", &PyPuller::PullAsync, nb::arg("handle"), nb::arg("timeout"),
           nb::arg("cancel").none(), nb::arg("key").none(), nb::arg("callback"))
      .def("pull_into_async", &PyPuller::PullIntoAsync, nb::arg("handle"), nb::arg("into"),
           nb::arg("timeout"), nb::arg("cancel").none(), nb::arg("key").none(), nb::arg("callback"))
      .def("decline", &PyPuller::Decline, nb::arg("handle"))
      .def("close", &PyPuller::Close)
      .def("transports", &PyPuller::Transports)
      .def("stats", &PyPuller::Stats);
  module.def("describe_worker", &PyPuller::Describe, nb::arg("puller").none(),
             nb::arg("max_message_bytes"));
}

}  // namespace tensorferry::python
