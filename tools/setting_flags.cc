#include "tools/setting_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <variant>

#include "nlohmann/json.hpp"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tools/file_io.h"
#include "tools/output.h"
#include "tools/settings.h"

namespace tensorferry::tools {
namespace {

bool IsSwitch(const SettingSpec& spec) {
  return std::holds_alternative<bool Settings::*>(spec.member);
}

}  // namespace

void SettingFlags::AddTo(CLI::App* verb) {
  for (const SettingSpec& spec : SettingTable()) {
    for (const std::string_view name : spec.flags) {
      if (name.empty()) continue;
      Flag& flag = flags_.emplace_back(Flag{.name = std::string(name)});
      const std::string dashed = StrCat("--", name);
      flag.option = verb->add_option(dashed, flag.text, std::string(spec.meaning))
                        ->group("Settings")
                        ->type_name("");
      // A switch by itself is on.
      if (IsSwitch(spec)) flag.option->expected(0, 1);
      flag.option->check([&spec, dashed](const std::string& text) {
        return text.empty() && IsSwitch(spec) ? std::string()
                                              : UsageOf(CheckSetting(spec, dashed, text));
      });
    }
  }
  verb->add_option("--config", config_, "JSON file of settings, by their names")
      ->group("Settings")
      ->check(CLI::ExistingFile);
}

absl::StatusOr<Settings> SettingFlags::Parse(SettingEnd end) const {
  SettingSources sources{.environment = &EnvironmentVariable, .end = end};
  for (const Flag& flag : flags_) {
    if (flag.option->count() == 0) continue;
    sources.flags.emplace_back(
        flag.name, flag.text.empty() && flag.option->get_expected_min() == 0 ? "true" : flag.text);
  }
  if (!config_.empty()) {
    const absl::StatusOr<std::string> text = ReadText(config_);
    if (!text.ok()) return text.status();
    absl::StatusOr<SettingPairs> config = ParseConfig(*text);
    if (!config.ok()) return Annotate(config.status(), config_);
    sources.config = *std::move(config);
  }
  return ParseSettings(sources);
}

absl::StatusOr<Settings> EnvironmentSettings(SettingEnd end, std::string_view verb) {
  absl::StatusOr<Settings> settings =
      ParseSettings({.environment = &EnvironmentVariable, .end = end, .finds_address = true});
  if (!settings.ok()) return settings;
  for (const std::string& warning : settings->warnings) {
    PrintError(verb, std::string_view(warning));
  }
  return settings;
}

bool FromEnvironment(const Settings& settings, std::string_view name) {
  return settings.OriginOf(name).kind == SettingOrigin::Kind::kEnvironment;
}

bool IsChosen(const Settings& settings, std::initializer_list<std::string_view> names) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) {
    const SettingOrigin::Kind kind = settings.OriginOf(name).kind;
    return kind != SettingOrigin::Kind::kDefault && kind != SettingOrigin::Kind::kDerived;
  });
}

absl::StatusOr<SettingPairs> ParseConfig(std::string_view json) {
  const auto object = nlohmann::ordered_json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    return MakeError(Reason::kBadOption, "is no JSON object: give {\"name of a setting\": value}");
  }
  SettingPairs out;
  for (const auto& [name, value] : object.items()) {
    if (value.is_string()) {
      out.emplace_back(name, value.get<std::string>());
    } else if (value.is_number() || value.is_boolean()) {
      out.emplace_back(name, value.dump());
    } else {
      return MakeError(Reason::kBadOption,
                       StrCat("configuration: ", name, " is neither text, number, true nor false"));
    }
  }
  return out;
}

}  // namespace tensorferry::tools
