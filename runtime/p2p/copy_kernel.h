// Internal to runtime/p2p: many short copies in one call.
#pragma once

#include <cstddef>

#include "absl/types/span.h"
#include "runtime/collectives/exec/reduce.h"

namespace shunt::p2p {

struct PointerRun {
  const std::byte* from;
  std::byte* to;
  size_t bytes;
};

// Runs must not overlap. Differs from CopyInto in what permuted blocks need: while one run is
// copied, the next one's first lines are fetched, which the processor can't foresee, and there is
// one fence a call, not one a run. Bytes are visible to a thread that the caller then synchronises
// with.
void CopyRuns(absl::Span<const PointerRun> runs, StorePolicy policy);

}  // namespace shunt::p2p
