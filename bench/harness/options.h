// The command lines of shunt-perf, shunt-compare and shunt-limits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/harness/control.h"
#include "bench/harness/net_cluster.h"
#include "bench/harness/operation.h"

namespace shunt::bench {

enum class Placement : uint8_t { kOut, kIn, kBoth };

// What the three have in common; shunt-limits uses a part of it.
struct SweepOptions {
  int ranks = 2;
  Memory memory = Memory::kHost;
  Placement placement = Placement::kBoth;
  DataType dtype = DataType::kFloat32;
  Redop redop = Redop::kSum;
  int root = 0;
  std::vector<uint64_t> sizes;  // bytes, as nccl-tests counts them
  int64_t iterations = 0;       // of a block; 0: by time
  int64_t warmup = 0;
  int blocks = 3;
  int64_t block_ns = 20'000'000;
  bool check = true;
  std::string json;
  std::string socket;     // empty: a private daemon
  int nodes = 1;          // more than one: network namespaces
  int aggregators = 0;    // further nodes with an aggregating daemon
  std::string link_rate;  // as tc writes it; empty: unshaped
  std::string algorithm;  // between nodes; empty: Shunt's choice
};

// The nodes that the options ask for; null for one. Sets SHUNT_ALGORITHM for what is started later.
absl::StatusOr<std::unique_ptr<NetCluster>> StartNodes(const SweepOptions& options);

struct PerfOptions : SweepOptions {
  std::string op;         // an Operation's name, or pull, push, read, write, join, open, soak, idle
  std::vector<int> cpus;  // ranks may run on these; empty: all
  bool bind = false;      // one rank on each of them in turn
  int64_t count = 0;      // of join, open, soak, idle: how many or how long; 0: their default
  bool open_child = false;
  // Of operations with --memory cuda.
  int64_t graph_calls = 0;     // replay a graph of so many calls; 0: no graph
  double after_kernel_us = 0;  // of other work on the stream before a timed block
  // Of pull, push, read and write.
  uint64_t piece_bytes = 16 << 10;
  std::string form = "ids";  // or runs, pieces, all
  int in_flight = 1;         // pull and push
  // Of read and write: one of a file and an object.
  std::string file;
  std::string endpoint;  // a URL, or a name of the configuration of --socket's daemon
  std::string bucket;
  std::string key;
  int bound_threads = 32;
};

struct CompareOptions : SweepOptions {
  std::string peer;
  Operation op = Operation::kAllReduce;
  int rounds = 5;
  bool bound = false;
  bool run_peer = true;
  bool run_shunt = true;
};

struct LimitsOptions {
  std::vector<int> ranks = {2, 4};
  std::vector<uint64_t> sizes = {2u << 20, 16u << 20};
  bool in_place = false;
  int blocks = 5;
  int64_t block_ns = 30'000'000;
  int nodes = 1;  // more than one: the links' limits instead of the memory's
  std::string link_rate = "250mbit";
  std::string json;
};

// Each returns the exit code if the program should end now: help was asked for, or the line is
// wrong (the words went to stderr).
std::optional<int> ParsePerfOptions(int argc, char** argv, PerfOptions* options);
std::optional<int> ParseCompareOptions(int argc, char** argv, CompareOptions* options);
std::optional<int> ParseLimitsOptions(int argc, char** argv, LimitsOptions* options);

}  // namespace shunt::bench
