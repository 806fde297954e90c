// Where the ranks of a communicator are: any order, any number on each node.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace shunt::exchange {

// A value. Nodes are numbered by their lowest rank's order of appearance.
struct NodeMap {
  std::vector<int32_t> node_of;                // by rank
  std::vector<std::vector<int32_t>> ranks_of;  // by node, ascending
  std::vector<int32_t> index_on_node;          // by rank: its place in ranks_of[node_of[rank]]

  int world() const { return static_cast<int>(node_of.size()); }
  int nodes() const { return static_cast<int>(ranks_of.size()); }
  int Leader(int node) const { return ranks_of[node].front(); }

  // `node_of[rank]` may be any labels; INVALID_ARGUMENT if empty.
  static absl::StatusOr<NodeMap> Make(const std::vector<int32_t>& labels);
};

}  // namespace shunt::exchange
