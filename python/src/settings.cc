#include "tensorferry/policy/settings.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>

#include "python/src/bindings.h"
#include "python/src/errors.h"
#include "tensorferry/base/text.h"

namespace nb = nanobind;

namespace tensorferry::python {
namespace {

Settings Parse(const std::map<std::string, std::string>& environment, const SettingPairs& config,
               const SettingPairs& flags, const std::string& end, bool finds_address) {
  SettingSources sources{.config = config, .flags = flags, .finds_address = finds_address};
  if (end == "gateway") {
    sources.end = SettingEnd::kGateway;
  } else if (end == "worker") {
    sources.end = SettingEnd::kWorker;
  } else if (end != "both") {
    ThrowError(Reason::kBadOption, StrCat("end ", end, " is none of gateway, worker, both"));
  }
  sources.environment = [&](std::string_view name) -> std::optional<std::string> {
    const auto found = environment.find(std::string(name));
    if (found == environment.end()) return std::nullopt;
    return found->second;
  };
  return ValueOrThrow(ParseSettings(sources));
}

// A number, true or false, a text, or None where there is none.
nb::object ValueOf(const Settings& settings, const SettingSpec& spec) {
  return std::visit(
      [&](const auto member) -> nb::object {
        using Value = std::remove_cvref_t<decltype(settings.*member)>;
        if constexpr (std::is_same_v<Value, bool> || std::is_same_v<Value, uint64_t>) {
          return nb::cast(settings.*member);
        } else {
          const std::string text = SettingText(settings, spec);
          return text.empty() ? nb::none() : nb::cast(text);
        }
      },
      spec.member);
}

// (name, value, value as text, origin)
nb::list Rows(const Settings& settings) {
  nb::list out;
  for (const SettingSpec& spec : SettingTable()) {
    out.append(nb::make_tuple(std::string(spec.name), ValueOf(settings, spec),
                              SettingText(settings, spec),
                              settings.OriginOf(spec.name).ToString()));
  }
  return out;
}

}  // namespace

void BindSettings(nb::module_& module) {
  nb::class_<Settings>(module, "Settings")
      .def_static("parse", &Parse, nb::arg("environment"), nb::arg("config"), nb::arg("flags"),
                  nb::arg("end"), nb::arg("finds_address"))
      .def(
          "for_worker",
          [](const Settings& self, std::optional<std::string> transport,
             std::optional<std::string> shm_min_bytes) {
            return ValueOrThrow(
                ForWorker(self, {.multimodal_tensor_transport = std::move(transport),
                                 .multimodal_shm_min_bytes = std::move(shm_min_bytes)}));
          },
          nb::arg("multimodal_tensor_transport").none(), nb::arg("multimodal_shm_min_bytes").none())
      .def("rows", &Rows)
      .def("listen", &Settings::listen)
      .def("warnings", [](const Settings& self) { return self.warnings; });
}

}  // namespace tensorferry::python
