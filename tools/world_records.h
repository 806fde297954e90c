// The records of all nodes as one: communicators with the ranks of every node, operations with the
// calls of every rank, on one clock. Views into the response, which outlives them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "shunt/v1/records.pb.h"

namespace shunt::tools {

// Nanoseconds of the first node's CLOCK_MONOTONIC; 0 stays 0.
int64_t OnFirstClock(const v1::NodeRecords& node, int64_t ns);

// Of a communicator: (source, destination, sequence), -1 for both: a collective.
using OperationKey = std::tuple<int, int, uint64_t>;

struct RankOf {
  const v1::NodeRecords* node = nullptr;
  const v1::RankRecord* record = nullptr;
  const v1::ProcessRecord* process = nullptr;  // null if it is gone
};

struct WorldCommunicator {
  const v1::CommunicatorRecord* first = nullptr;  // of some node: name, job, size, state
  bool failed = false;
  std::map<int, RankOf> ranks;
  // Each node's part of it.
  std::vector<std::pair<const v1::NodeRecords*, const v1::CommunicatorRecord*>> parts;

  std::string Name() const;  // "'train' (job j)"
  // The node of a rank that may have no record here; empty on one node.
  std::string NodeOf(int rank) const;
};

// In the order of the first node; joins are not among them.
std::vector<WorldCommunicator> Communicators(const v1::GetRecordsResponse& records);
// Joins that wait, by who meets: the ranks of all nodes.
std::vector<WorldCommunicator> Joins(const v1::GetRecordsResponse& records);

OperationKey KeyOf(int rank, const v1::CallRecord& call);
// "all_reduce #12 float32 sum count 1024".
std::string CallText(const v1::CallRecord& call);
// "rank 3 (pid 42 on node b, session "worker")".
std::string RankText(const WorldCommunicator& communicator, int rank);
// "ranks 0, 1 and 2"; of many the first few.
std::string RanksText(const std::vector<int>& ranks);
// "1.5 s", "320 ms", "12 us".
std::string DurationText(int64_t ns);

}  // namespace shunt::tools
