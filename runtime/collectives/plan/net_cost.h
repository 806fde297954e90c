// What a plan costs, from closed forms: for the tuner, which chooses by it, and for `explain`.
//
// A message of m bytes takes latency + m / rate (Hockney, "The communication challenge for MPP",
// 1994), each participant sends and receives one byte stream at a time, and slices follow each
// other through the plan as through a pipeline. The model knows nothing of who shares which link.
#pragma once

#include <cstdint>

#include "runtime/collectives/plan/net_plan.h"

namespace shunt {

// Measured, never assumed. All participants' links are alike; rates must be positive.
struct LinkModel {
  double latency_s = 0;           // first byte out to first byte in
  double message_overhead_s = 0;  // a participant's own time for each message
  double bytes_per_s = 1;         // of a participant's link, each direction
  double reduce_bytes_per_s = 1;  // contributions combined, or bytes copied
  // Time of bytes that several senders send to one receiver at once, as a multiple of their time
  // alone. At least 1.
  double incast_factor = 1;
};

// What a plan costs the participant (or aggregator) that it costs most. Independent of the link.
struct NetCost {
  double latencies = 0;      // rounds
  double messages = 0;       // sent or received, whichever are more; for each slice
  double link_bytes = 0;     // sent or received, whichever are more
  double path_bytes = 0;     // of the messages one after the other: what the first slice waits for
  double reduced_bytes = 0;  // combined with others
  double path_reduced_bytes = 0;
  double block_bytes = 0;
  bool incast = false;  // several send to one at once
  // Copied in memory besides: messages of several blocks, whose slices never lie together, are put
  // together and taken apart.
  double copied_bytes = 0;
};

// `bytes` is the size of the vector of all_reduce, reduce and broadcast, and of the larger buffer
// of the others: all participants' blocks. Anything for a barrier. `spec` must be valid.
NetCost CostOf(const NetSpec& spec, uint64_t bytes);
// In so many slices as the executor cuts it into; how many, is for who chooses to say.
double PredictSeconds(const NetCost& cost, const LinkModel& model, uint32_t slices);

}  // namespace shunt
