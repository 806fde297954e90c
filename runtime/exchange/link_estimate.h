// A node's idea of its way to the others: measured when connections are made, refreshed by what
// operations take.
#pragma once

#include <array>
#include <cstddef>

#include "runtime/collectives/plan/net_cost.h"
#include "runtime/exchange/link_numbers.h"

namespace shunt::exchange {

class LinkEstimate {
 public:
  // Operations that count together: one of them is likely to have waited for nobody.
  static constexpr size_t kWindow = 8;

  // A connection was measured.
  void AddProbe(const LinkNumbers& numbers);
  // An operation, in its shape's slices, took so long from this node's first step to its last. Its
  // time has the lateness of other nodes in it, so that only the fastest of some that are alike
  // tells anything. Kinds that a node may end before the others (those with a root), and
  // all_to_all_v, whose cost no node knows, tell nothing.
  void AddOperation(OpKind kind, const NetCost& cost, uint32_t slices, const LinkModel& model,
                    double seconds);

  const LinkNumbers& numbers() const { return numbers_; }

 private:
  // Of the times of operations that the rate decides, the least as a multiple of what was expected.
  struct Window {
    size_t count = 0;
    double least = 0;
  };
  LinkNumbers numbers_;
  Window bytes_, rounds_;
};

}  // namespace shunt::exchange
