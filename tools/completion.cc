#include "tools/completion.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace shunt::tools {
namespace {

// For single quotes of a shell.
std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// Of fish, where a backslash counts within quotes.
std::string FishQuoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

std::string WordsOf(const CommandWords& command) {
  std::vector<std::string> words;
  for (const OptionWords& option : command.options) {
    if (option.name.empty()) {
      words.insert(words.end(), option.choices.begin(), option.choices.end());
    } else {
      words.push_back(option.name);
    }
  }
  return absl::StrJoin(words, " ");
}

std::string Bash(const std::vector<CommandWords>& commands,
                 const std::vector<OptionWords>& everywhere) {
  std::vector<std::string> names, common, files, values;
  std::string choices;
  const auto note = [&](const OptionWords& option) {
    if (option.takes_file) {
      files.push_back(option.name);
    } else if (option.takes_value && option.choices.empty()) {
      values.push_back(option.name);
    } else if (option.takes_value) {
      absl::StrAppend(&choices, "    ", option.name, ") COMPREPLY=($(compgen -W \"",
                      absl::StrJoin(option.choices, " "), "\" -- \"$word\")); return ;;\n");
    }
  };
  std::string cases;
  for (const CommandWords& command : commands) {
    names.push_back(command.name);
    for (const OptionWords& option : command.options) note(option);
    absl::StrAppend(&cases, "    ", command.name, ") words=\"", WordsOf(command), "\" ;;\n");
  }
  for (const OptionWords& option : everywhere) {
    common.push_back(option.name);
    note(option);
  }
  return absl::StrCat(
      "# bash: source <(shuntctl completion bash)\n"
      "_shuntctl() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= words= "
      "i\n"
      "  case $before in\n",
      files.empty() ? ""
                    : absl::StrCat("    ", absl::StrJoin(files, "|"),
                                   ") COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n"),
      choices,
      values.empty()
          ? ""
          : absl::StrCat("    ", absl::StrJoin(values, "|"), ") COMPREPLY=(); return ;;\n"),
      "  esac\n"
      "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
      "    case ${COMP_WORDS[i]} in\n      ",
      absl::StrJoin(names, "|"),
      ") command=${COMP_WORDS[i]}; break ;;\n"
      "    esac\n"
      "  done\n"
      "  case $command in\n"
      "    \"\") words=\"",
      absl::StrJoin(names, " "), "\" ;;\n", cases,
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words ",
      absl::StrJoin(common, " "),
      "\" -- \"$word\"))\n"
      "}\n"
      "complete -F _shuntctl shuntctl\n");
}

std::string ZshOption(const OptionWords& option) {
  const std::string help = absl::StrReplaceAll(option.help, {{"[", "("}, {"]", ")"}, {":", "\\:"}});
  std::string value;
  if (option.takes_file) {
    value = ":file:_files";
  } else if (option.takes_value) {
    value = absl::StrCat(
        ":value:",
        option.choices.empty() ? "" : absl::StrCat("(", absl::StrJoin(option.choices, " "), ")"));
  }
  if (option.name.empty()) {
    return Quoted(absl::StrCat("1:", help, ":(", absl::StrJoin(option.choices, " "), ")"));
  }
  return Quoted(absl::StrCat(option.name, "[", help, "]", value));
}

std::string Zsh(const std::vector<CommandWords>& commands,
                const std::vector<OptionWords>& everywhere) {
  std::string names, cases, common;
  for (const OptionWords& option : everywhere) absl::StrAppend(&common, " ", ZshOption(option));
  for (const CommandWords& command : commands) {
    absl::StrAppend(
        &names, "    ",
        Quoted(absl::StrCat(command.name, ":", absl::StrReplaceAll(command.help, {{":", "\\:"}}))),
        "\n");
    absl::StrAppend(&cases, "        ", command.name, ") _arguments");
    for (const OptionWords& option : command.options)
      absl::StrAppend(&cases, " ", ZshOption(option));
    absl::StrAppend(&cases, " $common ;;\n");
  }
  return absl::StrCat(
      "#compdef shuntctl\n# zsh: put this into a file _shuntctl of a directory of $fpath, or: "
      "source "
      "<(shuntctl completion zsh)\n"
      "_shuntctl() {\n"
      "  local context state line\n  local -a commands common\n  commands=(\n",
      names, "  )\n  common=(", common,
      ")\n"
      "  _arguments -C $common '1:command:->command' '*::argument:->argument'\n"
      "  case $state in\n"
      "    command) _describe command commands ;;\n"
      "    argument)\n"
      "      case $words[1] in\n",
      cases,
      "      esac ;;\n"
      "  esac\n"
      "}\n"
      "(( $+functions[compdef] )) && compdef _shuntctl shuntctl\n");
}

std::string Fish(const std::vector<CommandWords>& commands,
                 const std::vector<OptionWords>& everywhere) {
  std::string script =
      "# fish: shuntctl completion fish > ~/.config/fish/completions/shuntctl.fish\n"
      "complete -c shuntctl -f\n";
  const auto add = [&script](const std::string& when, const OptionWords& option) {
    absl::StrAppend(&script, "complete -c shuntctl", when);
    if (!option.name.empty()) absl::StrAppend(&script, " -l ", option.name.substr(2));
    if (option.takes_file) {
      absl::StrAppend(&script, " -r -F");
    } else if (option.takes_value) {
      absl::StrAppend(&script, " -x");
    }
    if (!option.choices.empty()) {
      absl::StrAppend(&script, " -a ", FishQuoted(absl::StrJoin(option.choices, " ")));
    }
    absl::StrAppend(&script, " -d ", FishQuoted(option.help), "\n");
  };
  for (const OptionWords& option : everywhere) add("", option);
  for (const CommandWords& command : commands) {
    absl::StrAppend(&script, "complete -c shuntctl -n __fish_use_subcommand -a ", command.name,
                    " -d ", FishQuoted(command.help), "\n");
    for (const OptionWords& option : command.options) {
      add(absl::StrCat(" -n ", FishQuoted("__fish_seen_subcommand_from " + command.name)), option);
    }
  }
  return script;
}

}  // namespace

absl::StatusOr<std::string> CompletionScript(std::string_view shell,
                                             const std::vector<CommandWords>& commands,
                                             const std::vector<OptionWords>& everywhere) {
  if (shell == "bash") return Bash(commands, everywhere);
  if (shell == "zsh") return Zsh(commands, everywhere);
  if (shell == "fish") return Fish(commands, everywhere);
  return absl::InvalidArgumentError(absl::StrCat("completion: shell \"",
                                                 absl::string_view(shell.data(), shell.size()),
                                                 "\", expected bash, zsh or fish"));
}

}  // namespace shunt::tools
