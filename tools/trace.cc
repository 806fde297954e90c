#include "tools/trace.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/core/fd.h"
#include "runtime/core/status.h"
#include "tools/output.h"
#include "tools/world_records.h"

namespace shunt::tools {
namespace {

struct Event {
  std::string name, category;
  int64_t begin_ns = 0, end_ns = 0;
  Json args = Json::Object();
  // Within it, one after the other: waiting, moving.
  std::vector<std::pair<std::string, std::pair<int64_t, int64_t>>> phases;
};

// Microseconds with three decimals: a double would lose them on a machine that runs for long.
std::string Micros(int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof(text), "%s%lld.%03lld", ns < 0 ? "-" : "",
                static_cast<long long>(std::abs(ns) / 1000),
                static_cast<long long>(std::abs(ns) % 1000));
  return text;
}

class Writer {
 public:
  void Add(const v1::NodeRecords& node, const std::string& lane, Event event) {
    lanes_[{&node, lane}].push_back(std::move(event));
  }

  TraceText Finish(const v1::GetRecordsResponse& records) {
    int pid = 0;
    std::map<const v1::NodeRecords*, int> pids;
    for (const v1::NodeRecords& node : records.nodes()) {
      pids[&node] = ++pid;
      Metadata("process_name", pid, 0,
               absl::StrCat("node ", node.node().empty() ? "(this)" : Printable(node.node())));
      NumberMetadata("process_sort_index", pid, 0, pid);
    }
    std::map<const v1::NodeRecords*, int> tids;
    for (auto& [key, events] : lanes_) {
      std::stable_sort(events.begin(), events.end(),
                       [](const Event& a, const Event& b) { return a.begin_ns < b.begin_ns; });
      // Side by side where they overlap.
      std::vector<std::pair<int64_t, int>> rows;  // when it is free, its lane
      for (const Event& event : events) {
        auto row = std::find_if(rows.begin(), rows.end(),
                                [&](const auto& r) { return r.first <= event.begin_ns; });
        if (row == rows.end()) {
          const int tid = ++tids[key.first];
          Metadata(
              "thread_name", pids[key.first], tid,
              rows.empty() ? key.second : absl::StrCat(key.second, " (", rows.size() + 1, ")"));
          NumberMetadata("thread_sort_index", pids[key.first], tid, tid);
          row = rows.insert(rows.end(), {0, tid});
          ++trace_.lanes;
        }
        row->first = event.end_ns;
        Write(event, pids[key.first], row->second);
      }
    }
    Json clocks = Json::List();
    for (const v1::NodeRecords& node : records.nodes()) {
      clocks.Append(Json::Object()
                        .Add("node", node.node())
                        .Add("clock_offset_ns", node.clock_offset_ns())
                        .Add("clock_uncertainty_ns", node.clock_uncertainty_ns())
                        .Add("taken_at_us_of_its_clock", Micros(node.now_ns()))
                        .Add("taken_at_realtime_ns", node.realtime_ns())
                        .Add("calls_kept", node.calls_kept())
                        .Add("cut", node.cut()));
    }
    Json silent = Json::List();
    for (const v1::SilentNode& node : records.silent()) {
      silent.Append(Json::Object().Add("node", node.node()).Add("why", node.why()));
    }
    const std::string first = records.nodes_size() == 0 ? "" : records.nodes(0).node();
    const Json other = Json::Object()
                           .Add("clock", absl::StrCat("CLOCK_MONOTONIC of node ",
                                                      first.empty() ? "(this)" : first))
                           .Add("nodes", clocks)
                           .Add("silent_nodes", silent);
    trace_.text = absl::StrCat("{\"displayTimeUnit\": \"ns\", \"otherData\": ", other.Text(),
                               ", \"traceEvents\": [\n", body_, "\n]}\n");
    return std::move(trace_);
  }

 private:
  void Line(const std::string& text) { absl::StrAppend(&body_, body_.empty() ? "" : ",\n", text); }
  static std::string Head(const std::string& name, const char* phase, int pid, int tid) {
    Json head = Json::Object().Add("name", name).Add("ph", phase).Add("pid", pid).Add("tid", tid);
    std::string text = head.Text();
    text.pop_back();  // more follows
    return text;
  }
  void Metadata(const std::string& name, int pid, int tid, const std::string& value) {
    Line(absl::StrCat(Head(name, "M", pid, tid),
                      ", \"args\": ", Json::Object().Add("name", value).Text(), "}"));
  }
  void NumberMetadata(const std::string& name, int pid, int tid, int value) {
    Line(absl::StrCat(Head(name, "M", pid, tid),
                      ", \"args\": ", Json::Object().Add("sort_index", value).Text(), "}"));
  }
  void Complete(const std::string& name, const std::string& category, int64_t begin, int64_t end,
                const std::string& args, int pid, int tid) {
    Line(absl::StrCat(
        Head(name, "X", pid, tid), ", \"cat\": \"", category, "\", \"ts\": ", Micros(begin),
        ", \"dur\": ", Micros(std::max<int64_t>(0, end - begin)), ", \"args\": ", args, "}"));
    ++trace_.events;
  }
  void Write(const Event& event, int pid, int tid) {
    Complete(event.name, event.category, event.begin_ns, event.end_ns, event.args.Text(), pid, tid);
    for (const auto& [name, span] : event.phases) {
      const int64_t begin = std::max(span.first, event.begin_ns);
      const int64_t end = std::min(span.second, event.end_ns);
      if (end <= begin) continue;
      Complete(name, "phase", begin, end, "{}", pid, tid);
    }
  }

  std::map<std::pair<const v1::NodeRecords*, std::string>, std::vector<Event>> lanes_;
  std::string body_;
  TraceText trace_;
};

// When the last of all ranks came to each operation, and which.
struct Arrival {
  int64_t last_ns = 0;
  int last_rank = -1;
  size_t ranks = 0;
};

std::map<OperationKey, Arrival> ArrivalsOf(const WorldCommunicator& c) {
  std::map<OperationKey, Arrival> arrivals;
  for (const auto& [rank, of] : c.ranks) {
    for (const v1::CallRecord& call : of.record->calls()) {
      if (call.posted_ns() == 0) continue;
      Arrival& arrival = arrivals[KeyOf(rank, call)];
      ++arrival.ranks;
      const int64_t at = OnFirstClock(*of.node, call.posted_ns());
      if (arrival.last_rank < 0 || at > arrival.last_ns) {
        arrival.last_ns = at;
        arrival.last_rank = rank;
      }
    }
  }
  return arrivals;
}

void AddRanks(const WorldCommunicator& c, Writer* writer) {
  const std::map<OperationKey, Arrival> arrivals = ArrivalsOf(c);
  for (const auto& [rank, of] : c.ranks) {
    const std::string lane = absl::StrCat(c.Name(), " epoch ", c.first->epoch(), " rank ", rank,
                                          " (pid ", of.record->pid(), ")");
    for (const v1::CallRecord& call : of.record->calls()) {
      if (call.posted_ns() == 0) continue;
      const OperationKey key = KeyOf(rank, call);
      const Arrival& arrival = arrivals.at(key);
      const size_t expected =
          std::get<0>(key) >= 0 ? 2 : static_cast<size_t>(c.first->world_size());
      Event event;
      event.name = call.kind();
      event.category = std::get<0>(key) >= 0 ? "pair" : "collective";
      event.begin_ns = OnFirstClock(*of.node, call.posted_ns());
      event.end_ns =
          OnFirstClock(*of.node, call.ended_ns() != 0 ? call.ended_ns() : of.node->now_ns());
      event.args.Add("call", CallText(call))
          .Add("sequence", call.sequence())
          .Add("bytes", call.bytes())
          .Add("count", call.count())
          .Add("dtype", call.dtype())
          .Add("state", call.state())
          .Add("route", call.route());
      const bool all_came = arrival.ranks >= expected;
      if (all_came) {
        event.args
            .Add("all_arrived_after_us",
                 Micros(std::max<int64_t>(0, arrival.last_ns - event.begin_ns)))
            .Add("last_rank", arrival.last_rank);
        event.phases.push_back({"waits for ranks", {event.begin_ns, arrival.last_ns}});
      }
      if (call.moved_ns() != 0) {
        const int64_t moved = OnFirstClock(*of.node, call.moved_ns());
        event.args.Add("first_payload_after_us",
                       Micros(std::max<int64_t>(0, moved - event.begin_ns)));
        event.phases.push_back(
            {"moves", {all_came ? std::max(moved, arrival.last_ns) : moved, event.end_ns}});
      }
      writer->Add(*of.node, lane, std::move(event));
    }
  }
}

// On the lane of each node that takes part.
void AddExchanges(const WorldCommunicator& c, Writer* writer) {
  for (const auto& [node, part] : c.parts) {
    std::vector<std::string> others;
    for (const std::string& name : part->nodes()) {
      if (name != node->node() && std::find(others.begin(), others.end(), name) == others.end()) {
        others.push_back(name);
      }
    }
    for (const v1::ExchangeRecord& exchange : part->exchanges()) {
      if (exchange.began_ns() == 0) continue;
      std::vector<std::string> with = others;
      if (exchange.source() >= 0) {
        const std::string source = c.NodeOf(exchange.source());
        with = {source == node->node() ? c.NodeOf(exchange.destination()) : source};
      }
      for (const std::string& other : with) {
        Event event;
        event.name = absl::StrCat(exchange.kind(), " #", exchange.sequence());
        event.category = "exchange";
        event.begin_ns = OnFirstClock(*node, exchange.began_ns());
        event.end_ns =
            OnFirstClock(*node, exchange.ended_ns() != 0 ? exchange.ended_ns() : node->now_ns());
        event.args.Add("communicator", c.first->name())
            .Add("sequence", exchange.sequence())
            .Add("bytes", exchange.bytes())
            .Add("algorithm", exchange.algorithm())
            .Add("slices", exchange.slices())
            .Add("state", exchange.state())
            .Add("queued_us", Micros(exchange.began_ns() - exchange.arrived_ns()));
        writer->Add(*node, absl::StrCat("link ", node->node(), " - ", other), std::move(event));
      }
    }
  }
}

void AddTransfers(const v1::NodeRecords& node, Writer* writer) {
  for (const v1::TransferRecord& transfer : node.transfers()) {
    if (transfer.posted_ns() == 0) continue;
    Event event;
    event.name = absl::StrCat(transfer.route(), " ", SizeText(transfer.bytes()));
    event.category = "transfer";
    event.begin_ns = OnFirstClock(node, transfer.posted_ns());
    event.end_ns =
        OnFirstClock(node, transfer.ended_ns() != 0 ? transfer.ended_ns() : node.now_ns());
    event.args.Add("transfer", transfer.id())
        .Add("pid", transfer.pid())
        .Add("with", transfer.with())
        .Add("bytes", transfer.bytes())
        .Add("state", transfer.state())
        .Add("error", transfer.error());
    if (transfer.began_ns() != 0) {
      event.args.Add("queued_us", Micros(transfer.began_ns() - transfer.posted_ns()));
    }
    const std::string lane =
        transfer.node().empty()
            ? absl::StrCat("transfers: ", transfer.route())
            : absl::StrCat("link ", node.node(), " - ", transfer.node(), ": ", transfer.route());
    writer->Add(node, lane, std::move(event));
  }
}

}  // namespace

TraceText MakeTrace(const v1::GetRecordsResponse& records) {
  Writer writer;
  for (const WorldCommunicator& c : Communicators(records)) {
    AddRanks(c, &writer);
    AddExchanges(c, &writer);
  }
  for (const v1::NodeRecords& node : records.nodes()) AddTransfers(node, &writer);
  return writer.Finish(records);
}

absl::Status WriteWhole(const std::string& path, const std::string& text) {
  // A pipe or a device is written to as it is.
  struct stat info {};
  const bool special = ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
  if (special && S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is a directory; expected a file"));
  }
  const std::string beside = special ? path : absl::StrCat(path, ".", ::getpid(), ".part");
  const auto failed = [&](const char* what) {
    const absl::Status status = ErrnoStatus(errno, absl::StrCat(what, " ", beside));
    if (!special) ::unlink(beside.c_str());
    return status;
  };
  UniqueFd fd(
      ::open(beside.c_str(), O_WRONLY | O_CLOEXEC | (special ? 0 : O_CREAT | O_EXCL), 0644));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("making ", beside));
  for (size_t written = 0; written < text.size();) {
    const ssize_t n = ::write(fd.get(), text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed("writing");
    written += static_cast<size_t>(n);
  }
  if (special) return absl::OkStatus();
  if (::fsync(fd.get()) != 0) return failed("writing");
  if (::close(fd.Release()) != 0) return failed("writing");
  if (::rename(beside.c_str(), path.c_str()) != 0) return failed("putting in place");
  return absl::OkStatus();
}

}  // namespace shunt::tools
