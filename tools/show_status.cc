#include "absl/strings/str_cat.h"
#include "daemon/admin_json.h"
#include "tools/show.h"

namespace shunt::tools {
namespace {

// A record that is kept warm has no id: its next members get a new one.
std::string IdText(const v1::CommunicatorInfo& c) {
  return c.communicator_id() == 0 ? "-" : absl::StrCat(c.communicator_id());
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

// "ready, worker 4711, 3 regions of 12.0 GiB; NVIDIA H200, GPU-..."
void AddGpus(const v1::GetStatusResponse& status, Table* table) {
  for (const v1::GpuStatus& gpu : status.gpus()) {
    std::string words = gpu.state();
    if (gpu.pid() != 0) absl::StrAppend(&words, ", worker ", gpu.pid());
    if (gpu.restarts() != 0) absl::StrAppend(&words, ", replaced ", gpu.restarts(), " times");
    if (!gpu.why().empty()) absl::StrAppend(&words, " (", Printable(gpu.why()), ")");
    absl::StrAppend(&words, ", ", gpu.regions(), " regions of ", SizeText(gpu.region_bytes()), "; ",
                    Printable(gpu.name()), ", ", Printable(gpu.uuid()));
    table->Add({absl::StrCat("GPU ", gpu.ordinal()), words});
  }
}

}  // namespace

int ShowStatus(const Shown& to) {
  const auto status = to.client.Status();
  if (!status.ok()) return Fail(to.client, status.status());
  if (to.json) return Print(daemon::ToJson(*status));
  const std::string state = status->stopping()             ? ", stopping"
                            : status->state() == "serving" ? ""
                                                           : absl::StrCat(", ", status->state());
  Table table({"shuntd", status->version() + state});
  table.Add({"pid", absl::StrCat(status->pid())});
  table.Add({"up", AgeText(status->uptime_seconds())});
  table.Add({"sessions", absl::StrCat(status->sessions())});
  table.Add({"communicators", absl::StrCat(status->communicators(), ", with a call under way ",
                                           status->communicators_busy())});
  table.Add({"transfers in flight", absl::StrCat(status->transfers_in_flight())});
  table.Add({"regions", absl::StrCat(status->regions())});
  table.Add({"memory", absl::StrCat(SizeText(status->region_bytes()), " of ",
                                    SizeText(status->memory_limit_bytes()))});
  table.Add(
      {"workers", absl::StrCat(status->worker_threads(), " on CPUs ", status->worker_cpus())});
  table.Add(
      {"operations served by the daemon",
       absl::StrCat(status->operations_served(), ", of which failed ", status->operations_failed(),
                    " (asynchronous and gRPC calls; blocking ones are the ranks' own work)")});
  AddGpus(*status, &table);
  if (status->has_cluster()) AddCluster(status->cluster(), &table);
  return Print(table.Text(to.style));
}

Table SessionTable(const v1::ListSessionsResponse& sessions) {
  Table table({"SESSION", "PID", "UID", ">AGE", "REGIONS", ">MEMORY", "COMMUNICATORS", "IN FLIGHT",
               "NAME"});
  for (const v1::SessionInfo& s : sessions.sessions()) {
    table.Add({absl::StrCat(s.session_id()), absl::StrCat(s.pid()), absl::StrCat(s.uid()),
               AgeText(s.age_seconds()), absl::StrCat(s.regions()), SizeText(s.region_bytes()),
               absl::StrCat(s.communicators()), absl::StrCat(s.operations_in_flight()),
               Printable(s.name())});
  }
  return table;
}

int ShowSessions(const Shown& to) {
  const auto response = to.client.Sessions();
  if (!response.ok()) return Fail(to.client, response.status());
  if (to.json) return Print(daemon::ListToJson(response->sessions()));
  return Print(response->sessions().empty() ? "no sessions\n"
                                            : SessionTable(*response).Text(to.style));
}

Table CommunicatorTable(const v1::ListCommunicatorsResponse& communicators) {
  Table table(
      {">ID", "NAME", "JOB", "UID", "EPOCH", ">RANKS", "STATE", ">RANK", ">PID", "LAST CALL"});
  for (const v1::CommunicatorInfo& c : communicators.communicators()) {
    std::vector<std::string> row = {IdText(c),
                                    Printable(c.name()),
                                    Printable(c.job()),
                                    absl::StrCat(c.uid()),
                                    absl::StrCat(c.epoch()),
                                    absl::StrCat(c.members_size(), "/", c.world_size()),
                                    c.state()};
    for (const v1::MemberInfo& m : c.members()) {
      row.insert(row.end(),
                 {absl::StrCat(m.rank()), absl::StrCat(m.pid()), Printable(m.last_call())});
      table.Add(std::move(row));
      row.assign(7, "");  // the next member's line
    }
    if (c.members().empty()) {
      row.insert(row.end(), {"", "", ""});
      table.Add(std::move(row));
    }
  }
  return table;
}

int ShowCommunicators(const Shown& to) {
  const auto response = to.client.Communicators();
  if (!response.ok()) return Fail(to.client, response.status());
  if (to.json) return Print(daemon::ListToJson(response->communicators()));
  std::string failures;
  for (const v1::CommunicatorInfo& c : response->communicators()) {
    if (c.failure().empty()) continue;
    absl::StrAppend(&failures, "\n", Printable(c.name()), " (", IdText(c),
                    ") failed: ", Printable(c.failure()), "\n");
  }
  return Print(response->communicators().empty()
                   ? "no communicators\n"
                   : CommunicatorTable(*response).Text(to.style) + failures);
}

int Explain(const Shown& to, const v1::ExplainRequest& request) {
  const auto response = to.client.Explain(request);
  if (!response.ok()) return Fail(to.client, response.status());
  if (to.json) return Print(daemon::ToJson(*response));
  Table table({"ALGORITHM", ">PREDICTED", "CHOSEN"});
  for (const v1::ExplainCandidate& c : response->candidates()) {
    table.Add({c.algorithm(), TimeText(c.seconds()), c.chosen() ? "yes" : ""});
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
  return Print(
      absl::StrCat(text, "cut into ", response->slices(), " slices\n\n", table.Text(to.style)));
}

}  // namespace shunt::tools
