// A collective of one node's ranks as the launch that does it, by the definitions of
// runtime/collectives/plan/local_plan.h. One launch is enough for each kind: the ranks' buffers are
// all addresses of one GPU. Pure; no driver.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/gpu/kernels/params.h"
#include "runtime/gpu/worker/protocol.h"

namespace shunt::gpu {

struct CollectiveLaunch {
  enum class Kind : uint8_t {
    kSignal,  // no bytes move: a barrier, or nothing to do
    kReduce,
    kSpread,
  };
  Kind kind = Kind::kSignal;
  // The one that `kind` names, but for its signals; the other is not touched.
  ReduceParams reduce{};
  SpreadParams spread{};
};

// Of a command of kind kCollective. Copies onto themselves, of calls in place, are left out by the
// kernels. INVALID_ARGUMENT: the call makes no sense, or a rank lacks a buffer that it takes part
// with. UNIMPLEMENTED: all_to_all_v, whose sizes no command holds; it is a batch of copy runs.
absl::Status PlanCollective(const Command& command, CollectiveLaunch* launch);

}  // namespace shunt::gpu
