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
// copied, the next one's first lines are fetched, which the processor can't foresee, and nothing is
// fenced.
void CopyRuns(absl::Span<const PointerRun> runs, StorePolicy policy);

// After the last of some calls that streamed: their bytes are visible to whoever this thread then
// synchronises with. Waits for all stores, so not once for a few short runs.
void FinishRuns(StorePolicy policy);

}  // namespace shunt::p2p
