#include "tools/world_records.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "tools/output.h"

namespace shunt::tools {
namespace {

constexpr size_t kNamedMax = 8;

const v1::ProcessRecord* FindProcess(const v1::NodeRecords& node, int32_t pid) {
  for (const v1::ProcessRecord& process : node.processes()) {
    if (process.pid() == pid) return &process;
  }
  return nullptr;
}

void AddPart(const v1::NodeRecords& node, const v1::CommunicatorRecord& record,
             WorldCommunicator* into) {
  if (into->first == nullptr) into->first = &record;
  into->failed = into->failed || record.state() == "failed";
  into->parts.emplace_back(&node, &record);
  for (const v1::RankRecord& rank : record.ranks()) {
    into->ranks[rank.rank()] = {&node, &rank, FindProcess(node, rank.pid())};
  }
}

}  // namespace

int64_t OnFirstClock(const v1::NodeRecords& node, int64_t ns) {
  return ns == 0 ? 0 : ns - node.clock_offset_ns();
}

std::string WorldCommunicator::Name() const {
  std::string text = absl::StrCat("'", Printable(first->name()), "'");
  if (!first->job().empty()) absl::StrAppend(&text, " (job ", Printable(first->job()), ")");
  return text;
}

std::string WorldCommunicator::NodeOf(int rank) const {
  if (const auto at = ranks.find(rank); at != ranks.end()) return at->second.node->node();
  return rank >= 0 && rank < first->nodes_size() ? first->nodes(rank) : "";
}

std::vector<WorldCommunicator> Communicators(const v1::GetRecordsResponse& records) {
  std::vector<WorldCommunicator> all;
  std::map<uint64_t, size_t> by_wire;
  for (const v1::NodeRecords& node : records.nodes()) {
    for (const v1::CommunicatorRecord& record : node.communicators()) {
      if (record.state() == "joining") continue;
      size_t index = all.size();
      if (record.wire_id() != 0) index = by_wire.emplace(record.wire_id(), index).first->second;
      if (index == all.size()) all.emplace_back();
      AddPart(node, record, &all[index]);
    }
  }
  return all;
}

std::vector<WorldCommunicator> Joins(const v1::GetRecordsResponse& records) {
  std::vector<WorldCommunicator> all;
  std::map<std::tuple<uint32_t, std::string, std::string>, size_t> by_key;
  for (const v1::NodeRecords& node : records.nodes()) {
    for (const v1::CommunicatorRecord& record : node.communicators()) {
      if (record.state() != "joining") continue;
      const auto key = std::tuple(record.uid(), record.job(), record.name());
      const size_t index = by_key.emplace(key, all.size()).first->second;
      if (index == all.size()) all.emplace_back();
      AddPart(node, record, &all[index]);
    }
  }
  return all;
}

OperationKey KeyOf(int rank, const v1::CallRecord& call) {
  if (call.kind() == "send") return {rank, call.root(), call.sequence()};
  if (call.kind() == "recv") return {call.root(), rank, call.sequence()};
  return {-1, -1, call.sequence()};
}

std::string CallText(const v1::CallRecord& call) {
  std::string text = absl::StrCat(call.kind(), " #", call.sequence());
  if (!call.dtype().empty()) absl::StrAppend(&text, " ", call.dtype());
  if (!call.redop().empty()) absl::StrAppend(&text, " ", call.redop());
  if (!call.dtype().empty()) absl::StrAppend(&text, " count ", call.count());
  if (call.kind() == "send") {
    absl::StrAppend(&text, " to rank ", call.root());
  } else if (call.kind() == "recv") {
    absl::StrAppend(&text, " from rank ", call.root());
  } else if (call.root() >= 0) {
    absl::StrAppend(&text, " root ", call.root());
  }
  return text;
}

std::string RankText(const WorldCommunicator& communicator, int rank) {
  const auto at = communicator.ranks.find(rank);
  if (at == communicator.ranks.end()) {
    const std::string node = communicator.NodeOf(rank);
    return absl::StrCat("rank ", rank, node.empty() ? "" : " on node ", node);
  }
  const RankOf& of = at->second;
  std::string text = absl::StrCat("rank ", rank, " (pid ", of.record->pid());
  if (!of.node->node().empty()) absl::StrAppend(&text, " on node ", of.node->node());
  if (!of.record->session().empty()) {
    absl::StrAppend(&text, ", session \"", Printable(of.record->session()), "\"");
  }
  return text + ")";
}

std::string RanksText(const std::vector<int>& ranks) {
  if (ranks.empty()) return "no ranks";
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const size_t named = std::min(ranks.size(), kNamedMax);
  for (size_t i = 0; i < named; ++i) {
    const bool last = i + 1 == ranks.size();
    absl::StrAppend(&text, i == 0 ? "" : last ? " and " : ", ", ranks[i]);
  }
  if (ranks.size() > named) absl::StrAppend(&text, " and ", ranks.size() - named, " more");
  return text;
}

std::string DurationText(int64_t ns) {
  char text[32];
  const double value = static_cast<double>(ns);
  if (value < 0 ? value > -1e6 : value < 1e6) {
    std::snprintf(text, sizeof(text), "%.1f us", value * 1e-3);
  } else if (value < 0 ? value > -1e9 : value < 1e9) {
    std::snprintf(text, sizeof(text), "%.1f ms", value * 1e-6);
  } else {
    std::snprintf(text, sizeof(text), "%.1f s", value * 1e-9);
  }
  return text;
}

}  // namespace shunt::tools
