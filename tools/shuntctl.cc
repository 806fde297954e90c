// shuntctl: shows what a daemon is doing, and drains it.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/version.h"
#include "tools/admin_client.h"
#include "tools/completion.h"
#include "tools/record_commands.h"
#include "tools/show.h"

namespace shunt::tools {

int Print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kFine;
}

int Print(const Json& json) { return Print(json.Text() + "\n"); }

int FailUsage(const std::string& words) {
  std::fprintf(stderr, "shuntctl: %s\n", words.c_str());
  return kUsage;
}

int Fail(const AdminClient& client, const absl::Status& status) {
  std::fprintf(stderr, "shuntctl: %s\n", std::string(status.message()).c_str());
  return client.unreachable() ? kUnreachable : kRefused;
}

namespace {

// What the command line says.
struct Arguments {
  Target target;
  bool json = false;
  bool once = false;
  bool undo = false;
  uint64_t samples = 0;
  double interval = 0;  // 0: the command's own
  double grace = 0;     // seconds; 0: the daemon's
  std::string svg;
  std::string shell;
  v1::ExplainRequest explained;
  uint64_t bytes = 1 << 20;
  int32_t root = 0;
};

void AddCommands(CLI::App& app, Arguments& to) {
  const auto add = [&](const char* name, const char* words) {
    CLI::App* const command = app.add_subcommand(name, words);
    command->add_flag("--json", to.json, "print JSON");
    return command;
  };
  const CLI::AsNumberWithUnit seconds(
      std::map<std::string, double>{{"s", 1}, {"ms", 0.001}, {"m", 60}, {"h", 3600}},
      CLI::AsNumberWithUnit::CASE_INSENSITIVE, "TIME");
  const auto add_interval = [&](CLI::App* command, const char* help) {
    command->add_option("--interval", to.interval, help)
        ->transform(seconds)
        ->check(CLI::Range(0.05, 3600.0));
  };
  add("status", "the daemon itself: version, counts, memory, the cluster");
  CLI::App* const topology =
      add("topology", "the node as a tree: NUMA nodes, CPUs, GPUs, NICs; or as a picture");
  topology->add_option(
      "--svg", to.svg,
      "draw the node, its cards, its links and their load into this file (-: stdout)");
  add_interval(topology, "how long load is looked at for --svg; default: 0.5s");
  add_interval(add("links", "links to other nodes: latency, rate, bytes, what they carry now"),
               "how long to look at what they carry; default: 0.5s");
  add("sessions", "open sessions: processes, what they hold");
  add("communicators", "communicators: ranks, last calls, failures");
  add("transfers", "transfers in flight: who, with whom, how far");
  CLI::App* const explain =
      add("explain", "how a communicator's nodes exchange a call's data: candidates, choice, why");
  explain->add_option("operation", *to.explained.mutable_operation(), "all_reduce, broadcast, ...")
      ->required();
  explain->add_option("--bytes", to.bytes, "of the larger of a rank's buffers, e.g. 64M")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  explain->add_option("--communicator", *to.explained.mutable_name(), "its name")->required();
  explain->add_option("--job", *to.explained.mutable_job(), "its job");
  explain->add_option("--root", to.root, "of operations that have one")->capture_default_str();
  CLI::App* const top = add("top", "all of it, again and again, with what happens a second");
  add_interval(top, "between two looks; default: 2s");
  top->add_flag("--once", to.once, "one sample");
  top->add_option("--samples", to.samples,
                  "so many samples, one below the other; default: for ever")
      ->check(CLI::PositiveNumber);
  add("doctor", "checks what Shunt needs of this machine, and says what to do; 3 if it fails");
  CLI::App* const drain = add(
      "drain", "the daemon begins nothing new; running operations end; waits for that and says so");
  drain->add_flag("--undo", to.undo, "take up work again");
  drain
      ->add_option("--grace", to.grace,
                   "what running operations get, e.g. 30s; default: the daemon's grace_period")
      ->transform(seconds)
      ->check(CLI::Range(0.001, 86400.0));
  app.add_subcommand("completion", "a script for a shell that completes commands and options")
      ->add_option("shell", to.shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
}

std::vector<OptionWords> WordsOf(const CLI::App& command) {
  std::vector<OptionWords> words;
  for (const CLI::Option* option : command.get_options()) {
    OptionWords& out = words.emplace_back();
    out.help = option->get_description();
    if (!option->get_lnames().empty()) out.name = "--" + option->get_lnames().front();
    out.takes_value = option->get_items_expected_max() > 0 && !out.name.empty();
    for (const char* file : {"--socket", "--svg", "--out", "--ca", "--cert", "--key"}) {
      out.takes_file = out.takes_file || out.name == file;
    }
    if (out.name.empty() && command.get_name() == "completion") {
      out.choices = {"bash", "zsh", "fish"};
    } else if (out.name.empty()) {
      out.choices = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast",
                     "reduce",     "gather",     "scatter",        "barrier"};
    }
  }
  return words;
}

int Complete(const CLI::App& app, const std::string& shell) {
  std::vector<CommandWords> commands;
  for (const CLI::App* command : app.get_subcommands({})) {
    commands.push_back({command->get_name(), command->get_description(), WordsOf(*command)});
  }
  const auto script = CompletionScript(shell, commands, WordsOf(app));
  return script.ok() ? Print(*script) : FailUsage(std::string(script.status().message()));
}

int Run(const std::string& command, const RecordCommands& record_commands, Arguments& arguments) {
  auto client = AdminClient::Make(arguments.target);
  if (!client.ok()) return FailUsage(std::string(client.status().message()));
  const Shown to{**client, arguments.json, Style::OfStdout()};
  const auto interval = [&](double otherwise) {
    return arguments.interval > 0 ? arguments.interval : otherwise;
  };
  if (const auto code = record_commands.Run(command, to)) return *code;
  if (command == "status") return ShowStatus(to);
  if (command == "topology") return ShowTopology(to, arguments.svg, interval(0.5));
  if (command == "links") return ShowLinks(to, interval(0.5));
  if (command == "sessions") return ShowSessions(to);
  if (command == "communicators") return ShowCommunicators(to);
  if (command == "transfers") return ShowTransfers(to);
  if (command == "top") {
    return ShowTop(to, interval(2), arguments.once ? 1 : arguments.samples);
  }
  if (command == "drain") return Drain(to, arguments.undo, arguments.grace);
  if (command == "explain") {
    arguments.explained.set_bytes(arguments.bytes);
    arguments.explained.set_root(arguments.root);
    return Explain(to, arguments.explained);
  }
  return ShowDoctor(to);
}

int Main(int argc, char** argv) {
  CLI::App app("shuntctl: shows what Shunt's daemon on a node is doing, and drains it");
  Arguments arguments;
  const char* from_environment = std::getenv("SHUNT_SOCKET");
  arguments.target.socket =
      from_environment != nullptr ? from_environment : "/run/shunt/shuntd.sock";
  Target& target = arguments.target;
  app.add_option("--socket", target.socket,
                 "the daemon's socket; default: $SHUNT_SOCKET, else /run/shunt/shuntd.sock");
  app.add_option("--address", target.address,
                 "another node's daemon instead: HOST:PORT of its cluster.listen");
  app.add_option("--ca", target.ca, "with --address: the authority of its certificate (PEM)");
  app.add_option("--cert", target.cert,
                 "with --address: a certificate that its admin.remote names (PEM)");
  app.add_option("--key", target.key, "with --address: the key of --cert (PEM)");
  app.add_option("--node", target.node,
                 "with --address: whom its certificate is made out for, if it is not the host");
  app.set_version_flag("--version", std::string("shuntctl ") + daemon::kVersion);
  app.footer(
      "Exit status: 0 fine, 1 wrong usage, 2 no daemon answers, 3 found trouble, 4 refused.");
  app.require_subcommand(1);
  // --socket may also follow the command.
  app.fallthrough();
  AddCommands(app, arguments);
  const RecordCommands record_commands(&app, &arguments.json);
  try {
    app.parse(argc, argv);
  } catch (const CLI::RequiredError& error) {
    // CLI11 only says that a command is missing.
    const std::vector<std::string> unknown = app.remaining();
    if (unknown.empty() || !app.get_subcommands().empty()) {
      app.exit(error);
      return kUsage;
    }
    std::string known;
    for (const CLI::App* command : app.get_subcommands({})) {
      absl::StrAppend(&known, known.empty() ? "" : ", ", command->get_name());
    }
    return FailUsage(
        absl::StrCat("\"", Printable(unknown.front()), "\" is no command; known: ", known));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kFine : kUsage;
  }
  const std::string command = app.get_subcommands().front()->get_name();
  if (command == "completion") return Complete(app, arguments.shell);
  return Run(command, record_commands, arguments);
}

}  // namespace
}  // namespace shunt::tools

int main(int argc, char** argv) { return shunt::tools::Main(argc, argv); }
