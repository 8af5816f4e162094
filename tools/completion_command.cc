#include "tools/completion_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>

#include "tensorferry/base/text.h"
#include "tools/output.h"

namespace tensorferry::tools {
namespace {

// "--json --timeout", and what of them takes a value.
struct Options {
  std::string all;
  std::string with_value;
};

Options OptionsOf(const CLI::App& app) {
  Options out;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden from --help, too
    for (const std::string& name : option->get_lnames()) {
      StrAppend(&out.all, out.all.empty() ? "" : " ", "--", name);
      if (option->get_items_expected_max() > 0) {
        StrAppend(&out.with_value, out.with_value.empty() ? "" : "|", "--", name);
      }
    }
  }
  return out;
}

// The words of `{a,b}` in an option's description of its type: what IsMember says.
std::string ChoicesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t open = type.find('{'), close = type.find('}');
  if (open == std::string::npos || close == std::string::npos) return "";
  std::string words = type.substr(open + 1, close - open - 1);
  std::replace(words.begin(), words.end(), ',', ' ');
  return words;
}

std::string CaseOf(const CLI::App& verb) {
  const Options options = OptionsOf(verb);
  std::string out = StrCat("    ", verb.get_name(), ")\n      case \"$previous\" in\n");
  for (const CLI::Option* option : verb.get_options()) {
    const std::string choices = ChoicesOf(*option);
    if (choices.empty() || option->get_lnames().empty()) continue;
    StrAppend(&out, "        --", option->get_lnames().front(), ") words='", choices, "' ;;\n");
  }
  StrAppend(&out, "        ", options.with_value.empty() ? "-" : options.with_value,
            ") return ;;\n        *) words='", options.all, "' ;;\n      esac ;;\n");
  return out;
}

std::string Script(const CLI::App& app) {
  std::string verbs, cases;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    StrAppend(&verbs, verbs.empty() ? "" : " ", verb->get_name());
    StrAppend(&cases, CaseOf(*verb));
  }
  // A file is offered where no word fits: by bash itself (-o default).
  return StrCat(
      "# bash completion of tensorferry: source <(tensorferry completion)\n"
      "_tensorferry() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} words=''\n"
      "  COMPREPLY=()\n"
      "  if ((COMP_CWORD == 1)); then\n"
      "    words='",
      verbs, " ", OptionsOf(app).all,
      "'\n"
      "  else\n"
      "    case \"${COMP_WORDS[1]}\" in\n",
      cases,
      "    esac\n"
      "    # Without a dash it may be a file, unless it is one of a few words.\n"
      "    [[ $word == -* || $words != *--* ]] || return\n"
      "  fi\n"
      "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
      "}\n"
      "complete -o default -F _tensorferry tensorferry");
}

}  // namespace

void AddCompletionCommand(CLI::App& app, int* exit_code) {
  CLI::App* verb =
      app.add_subcommand("completion", "Print the script that completes this command in bash");
  verb->footer(
      "Example:\n  source <(tensorferry completion)\n\nIn zsh: autoload -U bashcompinit && "
      "bashcompinit, then the same.");
  verb->callback([&app, exit_code] {
    PrintLine(Script(app));
    *exit_code = kDone;
  });
}

}  // namespace tensorferry::tools
