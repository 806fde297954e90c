// How long a collective would take on a cluster, how, and which link it loads most.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/collectives/plan/net_plan.h"
#include "runtime/collectives/sim/cluster.h"

namespace shunt::sim {

enum class Method : uint8_t {
  kAuto,      // executed if that is quick
  kExecuted,  // plan, executor and transport engine run in virtual time
  kComputed,  // the plan is walked
};

struct Query {
  OpKind kind = OpKind::kAllReduce;
  uint64_t bytes = 0;  // as nccl-tests count them; of the whole buffer
  Algorithm algorithm = Algorithm::kRing;
  int root = 0;  // a rank
  Method method = Method::kAuto;
};

struct Prediction {
  Method method = Method::kComputed;  // that gave it
  double seconds = 0;                 // of a failure: when the first node reported it
  double algbw = 0, busbw = 0;        // bytes a second; 0 for a barrier or a failure
  std::string failure;                // empty: it succeeded
  // The most loaded link.
  std::string link;
  double link_bytes = 0;
  double link_busy = 0;  // part of the time
  int links_alike = 0;   // others with the same load
  uint64_t work = 0;     // messages that were looked at: what the prediction cost
};

// busbw / algbw, as nccl-tests define them.
double BusFactor(OpKind kind, int world);

// `cluster` has passed Check. INVALID_ARGUMENT if there is no such plan or the method can't do it.
absl::StatusOr<Prediction> Predict(const Cluster& cluster, const Query& query);

}  // namespace shunt::sim
