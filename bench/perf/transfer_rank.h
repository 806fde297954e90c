// A rank of shunt-perf's pull and push.
#pragma once

#include <cstdint>
#include <string>

#include "bench/harness/control.h"
#include "bench/harness/options.h"

namespace shunt::bench {

// What a rank found, for the driver and its peer.
struct Found {
  double time_us;  // a transfer's, the median over blocks
  double post_us;  // the part of it until the post returned
  uint64_t transfers;
  uint64_t wrong;
  uint64_t region;  // of any rank: its memory's
};

// The rank's process: serves the driver's commands, each of which has the bytes of a transfer as
// its problem's count. `found` is of all ranks; `peer_node` is "", or "@" and the node of the
// section that this rank moves from or to. Returns the exit code.
int ServeTransfers(const PerfOptions& options, int rank, const std::string& socket,
                   Control* control, const std::string& peer_node, Found* found);

}  // namespace shunt::bench
