// Which plan an operation among nodes runs by, and in how many slices: the same on all nodes, for
// it is computed from what all of them know alike.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/collectives/plan/net_cost.h"
#include "runtime/exchange/block_layout.h"
#include "runtime/exchange/link_numbers.h"

namespace shunt::exchange {

inline constexpr uint32_t kSlicesMax = 4096;  // that an operation is cut into

// By what a communicator's nodes choose. The same on all of them at every sequence number.
struct Policy {
  LinkModel model;
  std::optional<Algorithm> algorithm;  // for kinds that have such a plan
  int32_t aggregators = 0;             // that are ready to add for it
};

// What stands for numbers that are not measured, and for all of them where results must not depend
// on measurements.
LinkModel ReferenceModel();
LinkModel ModelOf(const LinkNumbers& numbers);
// So much that another plan may be the fastest.
bool Differ(const LinkModel& a, const LinkModel& b);

// What the plans' costs count by: all nodes' vectors of an operation, in bytes.
uint64_t BytesOf(const CollectiveSpec& call, int world);

struct Candidate {
  NetSpec net;
  uint32_t slices = 1;
  double seconds = 0;  // predicted
};
// Every plan that the kind has on these nodes, the fastest first; not for all_to_all_v, whose nodes
// know their own counts only.
std::vector<Candidate> Candidates(const CollectiveSpec& call, const NodeMap& map,
                                  const Policy& policy);

// The aggregators' plan of an all_reduce, the one kind that goes through them.
Shape AggregatedShape(const CollectiveSpec& call, const NodeMap& map, int32_t aggregators,
                      uint32_t slices);

// The policy's plan, or else the fastest. `map` outlives the shape.
Shape ChooseShape(const CollectiveSpec& call, const NodeMap& map, const Policy& policy);

}  // namespace shunt::exchange
