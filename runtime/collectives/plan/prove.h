// Proof of a local plan by a symbolic run: instead of numbers, blocks hold sets of contributions.
//
// For tests and for `explain`; never on a hot path (world^2 time and memory).
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "runtime/collectives/plan/local_plan.h"

namespace shunt {

// How the ranks' buffers lie in the proof. In place, every rank that has both an input and an
// output puts one into the other as NCCL allows (PlacementOf); all_to_all takes in == out, which is
// not allowed and which the proof rejects from two ranks on. A rank's buffers touch no other
// rank's, so a proof for all ranks in place holds for every mix.
enum class ProofPlacement : uint8_t { kOutOfPlace, kInPlace };

// Ok if the steps, run at the same time and in any order,
//  - read and write within InputBlocks and OutputBlocks of ranks of the world,
//  - write each output block of each rank exactly once, and nothing else,
//  - give each output block exactly the contributions that the operation's definition asks for,
//  each once and
//    in rank order,
//  - never read a block that another step overwrites.
// Otherwise Internal with a message that names the step and the block. `spec` must be valid.
absl::Status ProveSteps(const CollectiveSpec& spec, int world, ProofPlacement placement,
                        uint32_t step_count, absl::FunctionRef<LocalStep(uint32_t)> step_at);

// The same for the plan that StepAt makes.
absl::Status ProveLocalPlan(const CollectiveSpec& spec, int world, ProofPlacement placement);

}  // namespace shunt
