#include "bench/harness/layout.h"

#include <algorithm>

namespace shunt::bench {

int Layout::RanksOn(int node) const {
  int count = 0;
  for (int rank = 0; rank < ranks; ++rank) count += NodeOf(rank) == node;
  return count;
}

double LinkBytes(const Problem& problem, const Layout& layout) {
  if (layout.nodes < 2) return 0;
  const double size = static_cast<double>(SizeBytes(problem));
  const int nodes = layout.nodes;
  const int ranks = layout.ranks;
  // A node's part of the whole buffer that comes from, or goes to, other nodes.
  const auto foreign = [&](int node) {
    return static_cast<double>(ranks - layout.RanksOn(node)) / ranks;
  };
  double busiest = 0;
  switch (problem.op) {
    case Operation::kAllReduce:
      return 2.0 * (nodes - 1) / nodes * size;
    case Operation::kBroadcast:
    case Operation::kReduce:
    case Operation::kSendRecv:  // of each node's ranks only the last one has its next elsewhere
      return size;
    case Operation::kAllGather:
    case Operation::kReduceScatter:
      for (int n = 0; n < nodes; ++n) busiest = std::max(busiest, foreign(n) * size);
      return busiest;
    case Operation::kAllToAll:
      for (int n = 0; n < nodes; ++n) {
        busiest = std::max(busiest, layout.RanksOn(n) * foreign(n) * size);
      }
      return busiest;
    case Operation::kGather:
    case Operation::kScatter:
      return foreign(layout.NodeOf(problem.root)) * size;
    case Operation::kAllToAllV:
    case Operation::kBarrier:
      return 0;
  }
  return 0;
}

}  // namespace shunt::bench
