// `shuntctl hang`, `trace` and `stragglers`: what is read from the flight recorder.
#pragma once

#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace shunt::tools {

class RecordCommands {
 public:
  // Adds the commands, each with --json into `json`, which outlives this.
  RecordCommands(CLI::App* app, bool* json);

  // The exit status of the command; none if it is not one of these. hang: 0 nothing is stuck, 3
  // something is; 1 an error.
  std::optional<int> Run(const std::string& command, const std::string& socket, bool json) const;

 private:
  int Hang(const std::string& socket, bool json) const;
  int Trace(const std::string& socket, bool json) const;
  int Stragglers(const std::string& socket, bool json) const;

  std::string older_than_ = "1s", answer_within_ = "1s", out_, communicator_;
  bool this_node_ = false;
};

}  // namespace shunt::tools
