// The flags of settings (tensorferry/policy/settings.h) on a verb, and what they, a file and the
// environment say together.
//
//   auto flags = std::make_shared<SettingFlags>();
//   flags->AddTo(verb);                                   // --multimodal-tensor-transport, …
//   absl::StatusOr<Settings> settings = flags->Parse(SettingEnd::kBoth);
//
// Thread-safety: none.
#ifndef TENSORFERRY_TOOLS_SETTING_FLAGS_H_
#define TENSORFERRY_TOOLS_SETTING_FLAGS_H_

#include <initializer_list>
#include <list>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tensorferry/policy/settings.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tensorferry::tools {

class SettingFlags {
 public:
  // Every flag of the table, and --config. They live as long as this object.
  void AddTo(CLI::App* verb);
  // After the command line was parsed. kBadOption.
  absl::StatusOr<Settings> Parse(SettingEnd end) const;

 private:
  struct Flag {
    std::string name = {};
    std::string text = {};
    CLI::Option* option = nullptr;
  };
  std::list<Flag> flags_;  // the parser keeps pointers into it
  std::string config_;
};

// What the environment says to a verb that has flags of its own: a setting counts where
// FromEnvironment is true and the verb's flag was not given. Prints warnings. kBadOption.
absl::StatusOr<Settings> EnvironmentSettings(SettingEnd end, std::string_view verb);
bool FromEnvironment(const Settings& settings, std::string_view name);
// Whether anything set one of these, so that it is not the default's doing.
bool IsChosen(const Settings& settings, std::initializer_list<std::string_view> names);

// A configuration: one JSON object of names of settings, with texts, numbers, true or false.
// kBadOption.
absl::StatusOr<SettingPairs> ParseConfig(std::string_view json);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_SETTING_FLAGS_H_
