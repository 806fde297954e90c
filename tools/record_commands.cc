#include "tools/record_commands.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"
#include "tools/hang.h"
#include "tools/show.h"
#include "tools/stragglers.h"
#include "tools/trace.h"
#include "tools/world_records.h"

namespace shunt::tools {
namespace {

// "500ms", "2s", "1.5s", "1m", or seconds.
absl::StatusOr<int64_t> ParseDurationNs(const std::string& flag, const std::string& text) {
  size_t used = 0;
  double value = -1;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  const std::string unit = used == 0 ? "?" : text.substr(used);
  const double scale = unit == "us"                  ? 1e3
                       : unit == "ms"                ? 1e6
                       : unit.empty() || unit == "s" ? 1e9
                       : unit == "m"                 ? 60e9
                       : unit == "h"                 ? 3600e9
                                                     : 0;
  if (scale == 0 || !(value >= 0) || value * scale > 1e18) {
    return absl::InvalidArgumentError(absl::StrCat(
        flag, " is \"", text, "\"; expected a duration such as \"500ms\", \"1s\" or \"2m\""));
  }
  return static_cast<int64_t>(value * scale);
}

Json RanksJson(const std::vector<StuckRank>& ranks) {
  Json list = Json::List();
  for (const StuckRank& r : ranks) {
    list.Append(Json::Object()
                    .Add("rank", r.rank)
                    .Add("node", r.node)
                    .Add("pid", r.pid)
                    .Add("session", r.session)
                    .Add("last_call", r.last_call)
                    .Add("collectives", r.collectives)
                    .Add("process_state", r.process_state)
                    .Add("file", r.file));
  }
  return list;
}

Json SilentJson(const v1::GetRecordsResponse& records) {
  Json silent = Json::List();
  for (const v1::SilentNode& node : records.silent()) {
    silent.Append(Json::Object().Add("node", node.node()).Add("why", node.why()));
  }
  return silent;
}

std::vector<int> Numbers(const std::vector<StuckRank>& ranks) {
  std::vector<int> numbers;
  for (const StuckRank& r : ranks) numbers.push_back(r.rank);
  return numbers;
}

std::string SilentText(const v1::GetRecordsResponse& records) {
  std::string text;
  for (const v1::SilentNode& node : records.silent()) {
    absl::StrAppend(&text, "no answer from node ", Printable(node.node()), ": ",
                    Printable(node.why()), "\n");
  }
  return text;
}

}  // namespace

RecordCommands::RecordCommands(CLI::App* app, bool* json) {
  CLI::App* const hang = app->add_subcommand(
      "hang", "what is stuck now, on all nodes, and why; status 3 if anything is");
  hang->add_option("--older-than", older_than_, "what has waited for less is left out")
      ->capture_default_str();
  hang->add_option("--answer-within", answer_within_, "what other nodes' daemons are waited for")
      ->capture_default_str();
  CLI::App* const trace = app->add_subcommand(
      "trace", "writes what was recorded on all nodes as a trace for Perfetto or chrome://tracing");
  trace->add_option("--out", out_, "the file to write")->required();
  CLI::App* const stragglers =
      app->add_subcommand("stragglers", "which ranks come late to collectives, and how late");
  stragglers->add_option("--communicator", communicator_, "its name; default: all");
  for (CLI::App* const command : {hang, trace, stragglers}) {
    command->add_flag("--json", *json, "print JSON");
    command->add_flag("--this-node", this_node_, "of this node alone");
  }
}

std::optional<int> RecordCommands::Run(const std::string& command, const Shown& to) const {
  if (command == "hang") return Hang(to);
  if (command == "trace") return Trace(to);
  if (command == "stragglers") return Stragglers(to);
  return std::nullopt;
}

int RecordCommands::Hang(const Shown& to) const {
  const auto older_than = ParseDurationNs("--older-than", older_than_);
  if (!older_than.ok()) return FailUsage(std::string(older_than.status().message()));
  const auto answer_within = ParseDurationNs("--answer-within", answer_within_);
  if (!answer_within.ok()) return FailUsage(std::string(answer_within.status().message()));
  v1::GetRecordsRequest request;
  request.set_open_only(true);
  request.set_this_node_only(this_node_);
  request.set_answer_timeout_ms(
      static_cast<uint32_t>(std::clamp<int64_t>(*answer_within / 1'000'000, 1, 60'000)));
  const auto records = to.client.Records(request);
  if (!records.ok()) return Fail(to.client, records.status());
  const std::vector<Stuck> found = FindStuck(*records, *older_than);
  const int status = found.empty() ? kFine : kTrouble;
  if (to.json) {
    Json list = Json::List();
    for (const Stuck& s : found) {
      list.Append(Json::Object()
                      .Add("cause", s.cause)
                      .Add("what", s.what)
                      .Add("reason", s.reason)
                      .Add("communicator", s.communicator)
                      .Add("job", s.job)
                      .Add("sequence", s.sequence)
                      .Add("transfer", s.transfer)
                      .Add("node", s.node)
                      .Add("waited_seconds",
                           s.waited_ns < 0 ? -1.0 : 1e-9 * static_cast<double>(s.waited_ns))
                      .Add("waiting", RanksJson(s.waiting))
                      .Add("missing", RanksJson(s.missing)));
    }
    Print(Json::Object().Add("stuck", list).Add("silent_nodes", SilentJson(*records)).Text() +
          "\n");
    return status;
  }
  if (found.empty()) {
    Print(absl::StrCat("nothing is stuck: nothing has waited for more than ",
                       DurationText(*older_than), "\n", SilentText(*records)));
    return status;
  }
  std::string text;
  for (const Stuck& s : found) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", Printable(s.what),
                    s.waited_ns < 0 ? ": waits (since when is not known: recorder.calls is 0)"
                                    : absl::StrCat(": waits for ", DurationText(s.waited_ns)),
                    "\n  cause: ", s.cause, "\n  ", s.reason, "\n");
    if (!s.waiting.empty()) {
      absl::StrAppend(&text, "  waiting: ", RanksText(Numbers(s.waiting)), "\n");
    }
  }
  const std::string silent = SilentText(*records);
  Print(text + (silent.empty() ? "" : "\n" + silent));
  return status;
}

int RecordCommands::Trace(const Shown& to) const {
  v1::GetRecordsRequest request;
  request.set_this_node_only(this_node_);
  const auto records = to.client.Records(request);
  if (!records.ok()) return Fail(to.client, records.status());
  const TraceText trace = MakeTrace(*records);
  if (const absl::Status status = WriteWhole(out_, trace.text); !status.ok()) {
    return FailUsage(std::string(status.message()));
  }
  if (to.json) {
    return Print(Json::Object()
                     .Add("file", out_)
                     .Add("events", trace.events)
                     .Add("lanes", trace.lanes)
                     .Add("silent_nodes", SilentJson(*records))
                     .Text() +
                 "\n");
  }
  return Print(absl::StrCat(out_, ": ", trace.events, " events in ", trace.lanes, " lanes of ",
                            records->nodes_size(), records->nodes_size() == 1 ? " node" : " nodes",
                            "; open it at https://ui.perfetto.dev\n", SilentText(*records)));
}

int RecordCommands::Stragglers(const Shown& to) const {
  v1::GetRecordsRequest request;
  request.set_this_node_only(this_node_);
  const auto records = to.client.Records(request);
  if (!records.ok()) return Fail(to.client, records.status());
  Json list = Json::List();
  std::string text;
  for (const CommunicatorLateness& c : FindStragglers(*records)) {
    if (!communicator_.empty() && c.name != communicator_) continue;
    Json ranks = Json::List();
    Table table({"RANK", "NODE", "PID", "LATE, MEDIAN", "LATE, 99 %", "LATE, MOST", "LAST"});
    for (const StragglerRank& r : c.ranks) {
      ranks.Append(Json::Object()
                       .Add("rank", r.rank)
                       .Add("node", r.node)
                       .Add("pid", r.pid)
                       .Add("median_ns", r.lateness.median_ns)
                       .Add("p99_ns", r.lateness.p99_ns)
                       .Add("most_ns", r.lateness.most_ns)
                       .Add("median_behind_median_rank_ns", r.lateness.median_behind_median_ns)
                       .Add("times_last", r.lateness.last));
      table.Add({absl::StrCat(r.rank), r.node.empty() ? "-" : Printable(r.node),
                 absl::StrCat(r.pid), DurationText(r.lateness.median_ns),
                 DurationText(r.lateness.p99_ns), DurationText(r.lateness.most_ns),
                 absl::StrCat(r.lateness.last, " of ", c.operations)});
    }
    list.Append(Json::Object()
                    .Add("communicator", c.name)
                    .Add("job", c.job)
                    .Add("epoch", c.epoch)
                    .Add("state", c.state)
                    .Add("operations", c.operations)
                    .Add("clock_uncertainty_ns", c.uncertainty_ns)
                    .Add("ranks", ranks));
    absl::StrAppend(&text, text.empty() ? "" : "\n", "'", Printable(c.name), "'",
                    c.job.empty() ? "" : absl::StrCat(" (job ", Printable(c.job), ")"), ", epoch ",
                    c.epoch, ": the last ", c.operations, " collectives that all ranks came to",
                    c.uncertainty_ns == 0
                        ? ""
                        : absl::StrCat("; clocks of nodes are known to ",
                                       DurationText(static_cast<int64_t>(c.uncertainty_ns))),
                    "\n", table.Text());
  }
  if (to.json) return Print(list.Text() + "\n");
  if (text.empty()) text = "no collective of two ranks or more is recorded\n";
  return Print(text + SilentText(*records));
}

}  // namespace shunt::tools
