#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <variant>

#include "python/src/bindings.h"
#include "python/src/errors.h"
#include "python/src/memory.h"
#include "python/src/process.h"
#include "tensorferry/base/host.h"
#include "tensorferry/base/text.h"
#include "tensorferry/base/version.h"
#include "tensorferry/policy/lane.h"
#include "tensorferry/puller/handle.h"
#include "tensorferry/wire/descriptor.h"

namespace nb = nanobind;

namespace tensorferry::python {
namespace {

nb::bytes Bytes(std::span<const uint8_t> bytes) {
  return nb::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// (transport, where it is to be had)
nb::tuple WayParts(const wire::Way& way) {
  nb::list places;
  if (const auto* local = std::get_if<wire::LocalWay>(&way)) {
    places.append(local->socket_path);
  } else if (const auto* net = std::get_if<wire::NetWay>(&way)) {
    for (const SocketAddress& address : net->addresses) places.append(address.ToString());
  } else if (const auto* smg = std::get_if<wire::SmgDescriptor>(&way)) {
    places.append(StrCat(smg->host, ":", smg->port));
  } else if (const auto* file = std::get_if<wire::FileWay>(&way)) {
    places.append(file->name);
  }
  return nb::make_tuple(std::string(wire::TransportOf(way)), nb::tuple(places));
}

// Everything but the token, which is as secret as the channel that carried it.
nb::dict Inspect(const std::string& transport, const nb::bytes& descriptor, uint64_t nbytes,
                 uint64_t offset, std::optional<int64_t> key) {
  const wire::Descriptor d =
      ValueOrThrow(DecodeHandle({.transport = transport,
                                 .descriptor = std::string(descriptor.c_str(), descriptor.size()),
                                 .nbytes = nbytes,
                                 .offset = offset},
                                key));
  nb::dict out;
  out["instance"] = Bytes(d.instance);
  out["lease"] = d.lease.id;
  out["generation"] = d.lease.generation;
  out["key"] = d.key;
  out["nbytes"] = d.nbytes;
  out["checksum"] = d.checksum ? nb::cast(*d.checksum) : nb::none();
  out["wants_done"] = d.wants_done;
  nb::list ways;
  for (const wire::Way& way : d.ways) ways.append(WayParts(way));
  out["ways"] = nb::tuple(ways);
  return out;
}

// Empty for what is no transport.
std::string LaneOf(const std::string& transport) {
  const std::optional<Lane> lane = LaneOfTransport(transport);
  return lane ? std::string(LaneName(*lane)) : "";
}

}  // namespace

void BindDescriptors(nb::module_& module) {
  module.def("inspect", &Inspect, nb::arg("transport"), nb::arg("descriptor"), nb::arg("nbytes"),
             nb::arg("offset"), nb::arg("key").none());
  module.def("lane_of_transport", &LaneOf, nb::arg("transport"));
  module.def("shm_namespace", [] { return ThisHost().shm_namespace; });
}

}  // namespace tensorferry::python

NB_MODULE(_core, module) {
  using namespace tensorferry::
      python;  // NOLINT(google-build-using-namespace): the macro's function is outside
  // Objects may live until the process ends, where Python destroys nothing.
  nb::set_leak_warnings(false);
  if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
    throw nb::import_error(
        "tensorferry works in the main interpreter of a process only: use processes instead of "
        "subinterpreters");
  }
  WatchForks();
  RegisterErrors();
  BindMemory(module);
  BindPuller(module);
  BindExporter(module);
  BindDescriptors(module);
  BindSettings(module);
  BindLog(module);
  module.attr("version") = std::string(tensorferry::Version());
  module.def("require_own_process", &RequireOwnProcess);
  module.def(
      "error_of_reason",
      [](const std::string& reason, const std::string& message) {
        const auto known = tensorferry::ReasonFromName(reason);
        if (!known) throw nb::value_error("no such reason");
        return ErrorObject(tensorferry::MakeError(*known, message));
      },
      nb::arg("reason"), nb::arg("message"));
}
