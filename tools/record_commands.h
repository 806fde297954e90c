// `shuntctl hang`, `trace` and `stragglers`: what is read from the flight recorder.
#pragma once

#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace shunt::tools {

struct Shown;

class RecordCommands {
 public:
  // Adds the commands, each with --json into `json`, which outlives this.
  RecordCommands(CLI::App* app, bool* json);

  // The exit status of the command; none if it is not one of these. hang: 3 if anything is stuck.
  std::optional<int> Run(const std::string& command, const Shown& to) const;

 private:
  int Hang(const Shown& to) const;
  int Trace(const Shown& to) const;
  int Stragglers(const Shown& to) const;

  std::string older_than_ = "1s", answer_within_ = "1s", out_, communicator_;
  bool this_node_ = false;
};

}  // namespace shunt::tools
