// How ranks are spread over nodes, and what that costs on the nodes' links. Pure.
#pragma once

#include "bench/harness/operation.h"

namespace shunt::bench {

// Blocks of consecutive ranks, as even as they can be. At least one rank a node.
struct Layout {
  int ranks = 1;
  int nodes = 1;

  int NodeOf(int rank) const { return rank * nodes / ranks; }
  int RanksOn(int node) const;
};

// The least bytes that the busiest node link must carry in its busier direction; 0 where that is
// not defined (one node, barrier, all_to_all_v).
double LinkBytes(const Problem& problem, const Layout& layout);

}  // namespace shunt::bench
