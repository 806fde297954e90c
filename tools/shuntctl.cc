// shuntctl: shows what a daemon is doing.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/version.h"
#include "tools/admin_client.h"
#include "tools/doctor.h"
#include "tools/output.h"
#include "tools/record_commands.h"

namespace shunt::tools {
namespace {

int Print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return 0;
}

int Print(const Json& json) { return Print(json.Text() + "\n"); }

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "shuntctl: %s\n", std::string(status.message()).c_str());
  return 1;
}

Json ClusterJson(const v1::ClusterStatus& cluster) {
  Json nodes = Json::List();
  for (const v1::NodeStatus& n : cluster.nodes()) {
    nodes.Append(Json::Object()
                     .Add("name", n.name())
                     .Add("address", n.address())
                     .Add("role", n.role())
                     .Add("state", n.state())
                     .Add("why", n.why()));
  }
  return Json::Object()
      .Add("name", cluster.name())
      .Add("node", cluster.node())
      .Add("address", cluster.address())
      .Add("membership_trouble", cluster.membership_trouble())
      .Add("nodes", nodes);
}

// Those that are up are counted only, and of the others the first few are named.
void AddCluster(const v1::ClusterStatus& cluster, Table* table) {
  constexpr int kNamedMax = 8;
  table->Add(
      {"cluster", absl::StrCat(Printable(cluster.name()), ", as node ", Printable(cluster.node()),
                               " at ", Printable(cluster.address()))});
  if (!cluster.membership_trouble().empty()) {
    table->Add({"members not known", Printable(cluster.membership_trouble())});
  }
  int up = 0, aggregators = 0;
  std::vector<std::vector<std::string>> others;
  for (const v1::NodeStatus& n : cluster.nodes()) {
    const std::string name = n.name().empty() ? n.address() : n.name();
    const bool aggregates = n.role() == "aggregator";
    up += n.state() == "up";
    aggregators += aggregates;
    if (n.state() == "up") continue;
    others.push_back({absl::StrCat(aggregates ? "aggregator " : "node ", Printable(name)),
                      absl::StrCat(n.state(), n.why().empty() ? "" : ": ", Printable(n.why()))});
  }
  table->Add({"other nodes", absl::StrCat(cluster.nodes_size(), ", of which up ", up,
                                          ", aggregators ", aggregators)});
  if (others.size() > kNamedMax) {
    const size_t left_out = others.size() - kNamedMax;
    others.resize(kNamedMax);
    others.push_back({"", absl::StrCat("and ", left_out, " more (--json shows all)")});
  }
  for (std::vector<std::string>& row : others) table->Add(std::move(row));
}

int ShowStatus(AdminClient& client, bool json) {
  const auto status = client.Status();
  if (!status.ok()) return Fail(status.status());
  if (json) {
    Json out = Json::Object();
    out.Add("version", status->version())
        .Add("incarnation", status->incarnation())
        .Add("pid", status->pid());
    out.Add("uptime_seconds", status->uptime_seconds()).Add("sessions", status->sessions());
    out.Add("communicators", status->communicators()).Add("regions", status->regions());
    out.Add("region_bytes", status->region_bytes())
        .Add("memory_limit_bytes", status->memory_limit_bytes());
    out.Add("worker_threads", status->worker_threads()).Add("worker_cpus", status->worker_cpus());
    out.Add("operations_served", status->operations_served())
        .Add("operations_failed", status->operations_failed());
    out.Add("stopping", status->stopping());
    if (status->has_cluster()) out.Add("cluster", ClusterJson(status->cluster()));
    return Print(out);
  }
  Table table({"shuntd", status->version() + (status->stopping() ? ", stopping" : "")});
  table.Add({"pid", absl::StrCat(status->pid())});
  table.Add({"up", AgeText(status->uptime_seconds())});
  table.Add({"sessions", absl::StrCat(status->sessions())});
  table.Add({"communicators", absl::StrCat(status->communicators())});
  table.Add({"regions", absl::StrCat(status->regions())});
  table.Add({"memory", absl::StrCat(SizeText(status->region_bytes()), " of ",
                                    SizeText(status->memory_limit_bytes()))});
  table.Add(
      {"workers", absl::StrCat(status->worker_threads(), " on CPUs ", status->worker_cpus())});
  table.Add(
      {"operations served by the daemon",
       absl::StrCat(status->operations_served(), ", of which failed ", status->operations_failed(),
                    " (asynchronous and gRPC calls; blocking ones are the ranks' own work)")});
  if (status->has_cluster()) AddCluster(status->cluster(), &table);
  return Print(table.Text());
}

int ShowSessions(AdminClient& client, bool json) {
  const auto response = client.Sessions();
  if (!response.ok()) return Fail(response.status());
  Json list = Json::List();
  Table table(
      {"SESSION", "PID", "UID", "AGE", "REGIONS", "MEMORY", "COMMUNICATORS", "IN FLIGHT", "NAME"});
  for (const v1::SessionInfo& s : response->sessions()) {
    Json out = Json::Object();
    out.Add("session_id", s.session_id())
        .Add("name", s.name())
        .Add("pid", s.pid())
        .Add("uid", s.uid());
    out.Add("age_seconds", s.age_seconds())
        .Add("regions", s.regions())
        .Add("region_bytes", s.region_bytes());
    out.Add("communicators", s.communicators())
        .Add("operations_in_flight", s.operations_in_flight());
    out.Add("attached", s.attached());
    list.Append(out);
    table.Add({absl::StrCat(s.session_id()), absl::StrCat(s.pid()), absl::StrCat(s.uid()),
               AgeText(s.age_seconds()), absl::StrCat(s.regions()), SizeText(s.region_bytes()),
               absl::StrCat(s.communicators()), absl::StrCat(s.operations_in_flight()),
               Printable(s.name())});
  }
  if (json) return Print(list);
  return Print(response->sessions().empty() ? "no sessions\n" : table.Text());
}

int ShowCommunicators(AdminClient& client, bool json) {
  const auto response = client.Communicators();
  if (!response.ok()) return Fail(response.status());
  Json list = Json::List();
  Table table({"ID", "NAME", "JOB", "UID", "EPOCH", "RANKS", "STATE", "RANK", "PID", "LAST CALL"});
  std::string failures;
  for (const v1::CommunicatorInfo& c : response->communicators()) {
    Json out = Json::Object();
    out.Add("communicator_id", c.communicator_id())
        .Add("name", c.name())
        .Add("job", c.job())
        .Add("uid", c.uid());
    out.Add("epoch", c.epoch()).Add("world_size", c.world_size()).Add("state", c.state());
    out.Add("failure", c.failure());
    Json members = Json::List();
    // A record that is kept warm has no id: its next members get a new one.
    const std::string id = c.communicator_id() == 0 ? "-" : absl::StrCat(c.communicator_id());
    std::vector<std::string> row = {id,
                                    Printable(c.name()),
                                    Printable(c.job()),
                                    absl::StrCat(c.uid()),
                                    absl::StrCat(c.epoch()),
                                    absl::StrCat(c.members_size(), "/", c.world_size()),
                                    c.state()};
    for (const v1::MemberInfo& m : c.members()) {
      Json member = Json::Object();
      member.Add("rank", m.rank()).Add("pid", m.pid()).Add("session_id", m.session_id());
      member.Add("last_call", m.last_call());
      members.Append(member);
      row.insert(row.end(),
                 {absl::StrCat(m.rank()), absl::StrCat(m.pid()), Printable(m.last_call())});
      table.Add(std::move(row));
      row.assign(7, "");  // the next member's line
    }
    if (c.members().empty()) {
      row.insert(row.end(), {"", "", ""});
      table.Add(std::move(row));
    }
    out.Add("members", members);
    list.Append(out);
    if (!c.failure().empty()) {
      absl::StrAppend(&failures, "\n", Printable(c.name()), " (", id,
                      ") failed: ", Printable(c.failure()), "\n");
    }
  }
  if (json) return Print(list);
  return Print(response->communicators().empty() ? "no communicators\n" : table.Text() + failures);
}

int ShowTopology(AdminClient& client, bool json) {
  const auto response = client.Topology();
  if (!response.ok()) return Fail(response.status());
  Json nodes = Json::List();
  Table table({"NUMA NODE", "CPUS", "MEMORY"});
  for (const v1::NumaNode& n : response->numa_nodes()) {
    nodes.Append(Json::Object()
                     .Add("index", n.index())
                     .Add("cpus", n.cpus())
                     .Add("memory_bytes", n.memory_bytes()));
    table.Add({absl::StrCat(n.index()), n.cpus(), SizeText(n.memory_bytes())});
  }
  if (json) {
    return Print(Json::Object()
                     .Add("cpus", response->cpus())
                     .Add("memory_bytes", response->memory_bytes())
                     .Add("numa_nodes", nodes));
  }
  return Print(absl::StrCat(response->cpus(), " CPUs, ", SizeText(response->memory_bytes()), "\n\n",
                            table.Text()));
}

// "12.3 us".
std::string TimeText(double seconds) {
  char text[32];
  if (seconds < 1e-3) {
    std::snprintf(text, sizeof(text), "%.1f us", 1e6 * seconds);
  } else if (seconds < 1) {
    std::snprintf(text, sizeof(text), "%.2f ms", 1e3 * seconds);
  } else {
    std::snprintf(text, sizeof(text), "%.2f s", seconds);
  }
  return text;
}

int Explain(AdminClient& client, const v1::ExplainRequest& request, bool json) {
  const auto response = client.Explain(request);
  if (!response.ok()) return Fail(response.status());
  Json list = Json::List();
  Table table({"ALGORITHM", "PREDICTED", "CHOSEN"});
  for (const v1::ExplainCandidate& c : response->candidates()) {
    list.Append(Json::Object()
                    .Add("algorithm", c.algorithm())
                    .Add("seconds", c.seconds())
                    .Add("chosen", c.chosen()));
    table.Add({c.algorithm(), TimeText(c.seconds()), c.chosen() ? "yes" : ""});
  }
  if (json) {
    return Print(Json::Object()
                     .Add("communicator_id", response->communicator_id())
                     .Add("epoch", response->epoch())
                     .Add("world_size", response->world_size())
                     .Add("nodes", response->nodes())
                     .Add("latency_ns", response->latency_ns())
                     .Add("message_ns", response->message_ns())
                     .Add("bytes_per_second", response->bytes_per_second())
                     .Add("version", response->version())
                     .Add("deterministic", response->deterministic())
                     .Add("algorithm", response->algorithm())
                     .Add("slices", response->slices())
                     .Add("candidates", list));
  }
  std::string text =
      absl::StrCat(request.operation(), " of ", SizeText(request.bytes()), " on communicator ",
                   Printable(request.name()), ", epoch ", response->epoch(), ": ",
                   response->world_size(), " ranks on ", response->nodes(), " nodes\n");
  if (response->nodes() == 1) {
    return Print(text + "Ranks of one node meet in its memory: there is nothing to choose.\n");
  }
  absl::StrAppend(&text, "links: latency ", TimeText(1e-9 * response->latency_ns()), ", ",
                  TimeText(1e-9 * response->message_ns()), " a message, ",
                  SizeText(response->bytes_per_second()), "/s; ",
                  response->deterministic()
                      ? "fixed, for the communicator is deterministic"
                      : absl::StrCat("version ", response->version(), " of what was measured"),
                  "\n");
  if (!response->algorithm().empty()) {
    absl::StrAppend(&text, "the ranks joined with algorithm ", response->algorithm(), "\n");
  }
  return Print(absl::StrCat(text, "cut into ", response->slices(), " slices\n\n", table.Text()));
}

int ShowDoctor(AdminClient& client, const std::string& socket, bool json) {
  static constexpr const char* kResults[] = {"ok", "warning", "failed"};
  Json list = Json::List();
  Table table({"CHECK", "RESULT", "SEEN"});
  std::string advice;
  bool failed = false;
  for (const Check& check : Diagnose(&client, socket)) {
    const char* result = kResults[static_cast<int>(check.result)];
    failed = failed || check.result == Check::Result::kFailed;
    list.Append(Json::Object()
                    .Add("check", check.name)
                    .Add("result", std::string(result))
                    .Add("seen", check.seen)
                    .Add("advice", check.advice));
    // One line each; the words of an error may have several.
    table.Add({check.name, result, Printable(check.seen.substr(0, check.seen.find('\n')))});
    if (!check.advice.empty()) absl::StrAppend(&advice, check.name, ": ", check.advice, "\n");
  }
  if (json) {
    Print(list);
  } else {
    Print(table.Text() + (advice.empty() ? "" : "\n" + advice));
  }
  return failed ? 1 : 0;
}

int Main(int argc, char** argv) {
  CLI::App app("shuntctl: shows what Shunt's daemon on this node is doing");
  const char* from_environment = std::getenv("SHUNT_SOCKET");
  std::string socket = from_environment != nullptr ? from_environment : "/run/shunt/shuntd.sock";
  bool json = false;
  app.add_option("--socket", socket,
                 "the daemon's socket; default: $SHUNT_SOCKET, else /run/shunt/shuntd.sock");
  app.set_version_flag("--version", std::string("shuntctl ") + daemon::kVersion);
  app.require_subcommand(1);
  // --socket may also follow the command.
  app.fallthrough();
  for (const auto& [name, words] :
       {std::pair("status", "the daemon itself: version, counts, memory"),
        std::pair("topology", "CPUs and NUMA nodes as the daemon sees them"),
        std::pair("sessions", "open sessions: processes, what they hold"),
        std::pair("communicators", "communicators: ranks, last calls, failures"),
        std::pair("doctor",
                  "checks what Shunt needs of this machine; status 1 if something is wrong")}) {
    app.add_subcommand(name, words)->add_flag("--json", json, "print JSON");
  }
  const RecordCommands record_commands(&app, &json);
  v1::ExplainRequest explained;
  uint64_t bytes = 1 << 20;
  int32_t root = 0;
  CLI::App* const explain = app.add_subcommand(
      "explain", "how a communicator's nodes exchange a call's data: candidates, choice, why");
  explain->add_option("operation", *explained.mutable_operation(), "all_reduce, broadcast, ...")
      ->required();
  explain->add_option("--bytes", bytes, "of the larger of a rank's buffers, e.g. 64M")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  explain->add_option("--communicator", *explained.mutable_name(), "its name")->required();
  explain->add_option("--job", *explained.mutable_job(), "its job");
  explain->add_option("--root", root, "of operations that have one")->capture_default_str();
  explain->add_flag("--json", json, "print JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::RequiredError& error) {
    // CLI11 only says that a command is missing.
    const std::vector<std::string> unknown = app.remaining();
    if (unknown.empty()) return app.exit(error);
    std::string known;
    for (const CLI::App* command : app.get_subcommands({})) {
      absl::StrAppend(&known, known.empty() ? "" : ", ", command->get_name());
    }
    std::fprintf(stderr, "shuntctl: \"%s\" is no command; known: %s\n",
                 Printable(unknown.front()).c_str(), known.c_str());
    return error.get_exit_code();
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }

  AdminClient client(socket);
  const std::string command = app.get_subcommands().front()->get_name();
  if (const auto code = record_commands.Run(command, socket, json)) return *code;
  if (command == "status") return ShowStatus(client, json);
  if (command == "topology") return ShowTopology(client, json);
  if (command == "sessions") return ShowSessions(client, json);
  if (command == "communicators") return ShowCommunicators(client, json);
  if (command == "explain") {
    explained.set_bytes(bytes);
    explained.set_root(root);
    return Explain(client, explained, json);
  }
  return ShowDoctor(client, socket, json);
}

}  // namespace
}  // namespace shunt::tools

int main(int argc, char** argv) { return shunt::tools::Main(argc, argv); }
