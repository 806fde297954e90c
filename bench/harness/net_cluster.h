// Nodes for a benchmark: network namespaces on this machine with links of a chosen rate. The
// namespaces are made by the tests' fixture (tests/cluster/netns.py), which runs as a child.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/core/fd.h"

namespace shunt::bench {

// Not thread-safe. Gone with the process that made it, however that ends.
class NetCluster {
 public:
  struct Node {
    UniqueFd network;  // the namespace: for SpawnProgram, EnterNetwork
    std::string address;
    std::string interface;
    bool aggregator = false;
  };
  struct Bytes {
    uint64_t received = 0;
    uint64_t sent = 0;
  };
  struct Link {
    double gbps = 0;  // payload, 10^9 bytes a second
    std::string congestion_control;
  };

  // `link_rate` as tc writes it; empty: unshaped. UNAVAILABLE where this machine lets us have no
  // namespaces, or lacks a tool.
  static absl::StatusOr<std::unique_ptr<NetCluster>> Start(int nodes, const std::string& link_rate,
                                                           int aggregators);
  ~NetCluster();
  NetCluster(const NetCluster&) = delete;
  NetCluster& operator=(const NetCluster&) = delete;

  // The nodes with ranks come first, then the aggregators.
  const std::vector<Node>& nodes() const { return nodes_; }
  int rank_nodes() const { return rank_nodes_; }
  // As the daemons' configuration has it.
  static std::string NodeName(int node) { return "n" + std::to_string(node); }
  const std::string& link_rate() const { return link_rate_; }

  absl::Status Shape(const std::string& link_rate);
  // What each node's interface has counted since it was made.
  absl::StatusOr<std::vector<Bytes>> Counters();
  // One TCP stream of iperf3.
  absl::StatusOr<Link> MeasureLink(int from, int to, int seconds);
  // UCX over TCP, a test of ucx_perftest ("tag_bw"); 10^9 bytes a second.
  absl::StatusOr<double> MeasureUcx(const std::string& test, int from, int to,
                                    uint64_t message_bytes, int messages);
  // The same by shunt-transport-perf, at the path `program`.
  absl::StatusOr<double> MeasureTransport(const std::string& program, int from, int to,
                                          uint64_t message_bytes, int messages);
  // Writes the configuration file of the daemon on `node`, which has all nodes as static members.
  absl::Status WriteDaemonConfig(int node, const std::string& path);

 private:
  NetCluster() = default;
  absl::StatusOr<std::vector<std::string>> ReadReply(const std::string& request);
  absl::StatusOr<std::vector<std::string>> Ask(const std::string& request);

  std::vector<Node> nodes_;
  int rank_nodes_ = 0;
  std::string link_rate_;
  pid_t server_ = 0;
  std::FILE* requests_ = nullptr;
  std::FILE* replies_ = nullptr;
};

// Moves the calling thread into a namespace; for a forked child before it opens anything.
absl::Status EnterNetwork(int network);

// The busiest direction of the busiest of the first `nodes` nodes between two readings.
uint64_t BusiestLink(const std::vector<NetCluster::Bytes>& before,
                     const std::vector<NetCluster::Bytes>& after, int nodes);

}  // namespace shunt::bench
