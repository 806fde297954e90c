// Proof of a plan among nodes by a symbolic run: instead of numbers, blocks hold sets of
// contributions, and the expression that has combined them.
//
// The run is the strictest one that net_plan.h allows. A message moves when both its ends are
// ready (no buffer between them). An end is ready when all earlier steps of its participant that
// touch the same blocks are over, where one of the two writes; the one exception is the arrival of
// a kRecvReduce, which waits for earlier writes only, as the executor has scratch for one arrival a
// block. If all steps of such a run come to their end, then so do those of every executor that
// waits for no more than that.
//
// For tests and `explain`; not for hot paths. It materialises all participants' steps.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/collectives/plan/net_plan.h"

namespace shunt {

// The largest numbers of any participant, or of any aggregator. Blocks are those of the plan (see
// BlockRangeOf for their sizes).
struct NetLoad {
  uint32_t sent_blocks = 0, received_blocks = 0;
  uint32_t sent_messages = 0, received_messages = 0;
  uint32_t reduced_blocks = 0;  // combinations of two blocks
};

struct NetProof {
  uint32_t rounds = 0;  // as the steps say, at least `depth`
  uint32_t depth = 0;   // messages in the longest chain in which each carries on what the last one
                        // brought: the latencies of a run with any number of links
  NetLoad participant, aggregator;
  // Blocks that a participant has written and that are not among its outputs, from the first write
  // to the last use, at once, if it runs its list in order. Scratch for arrivals is not counted.
  uint32_t extra_blocks_max = 0;
};

// A plan to be proved: NetStepCount and NetStepAt, or a test's broken copy of them.
struct NetSteps {
  absl::FunctionRef<uint32_t(int participant)> count;
  absl::FunctionRef<NetStep(int participant, uint32_t index)> at;
};

// Proves plans one after the other; keeps its memory in between. Not thread-safe.
class NetProver {
 public:
  NetProver();
  ~NetProver();

  // The counts if, in the strictest run,
  //  - peers and blocks exist, and no step names a block twice,
  //  - sends and receives pair up and cover the same blocks in the same order, in the same round,
  //  - a round carries on only what earlier rounds brought, and waits for no later one,
  //  - every step comes to its end,
  //  - nobody sends or reduces into a block that it does not hold (but aggregators), or combines
  //    a contribution with itself,
  //  - every block that must be held at the end is, with each contribution exactly once,
  //  - after an all_reduce all participants' blocks come from the same expression: the same
  //    operands, left and right, in the same tree.
  // Otherwise Internal with a message that names participant, step and block. `spec` must be valid.
  absl::StatusOr<NetProof> Prove(const NetSpec& spec);
  absl::StatusOr<NetProof> Prove(const NetSpec& spec, const NetSteps& steps);

 private:
  class Run;
  std::unique_ptr<Run> run_;
};

}  // namespace shunt
