// Scripts that let a shell complete shuntctl's commands and options, made from the same table that
// parses them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace shunt::tools {

struct OptionWords {
  std::string name;  // "--json"
  std::string help;
  bool takes_value = false;
  bool takes_file = false;           // the value is a file's name
  std::vector<std::string> choices;  // of the value, or of what stands alone (an empty name)
};
struct CommandWords {
  std::string name;
  std::string help;
  std::vector<OptionWords> options;
};

// `shell`: "bash", "zsh" or "fish"; INVALID_ARGUMENT for others. `everywhere`: options that every
// command takes.
absl::StatusOr<std::string> CompletionScript(std::string_view shell,
                                             const std::vector<CommandWords>& commands,
                                             const std::vector<OptionWords>& everywhere);

}  // namespace shunt::tools
