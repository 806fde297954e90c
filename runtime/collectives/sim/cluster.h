// A cluster as the simulator sees it: plain data, from a description file and flags.
//
//   unit: the GPUs of one NVLink domain    unit 0                unit 1
//                                          GPU 0 … GPU d-1       GPU 0 … GPU d-1
//   inside it: NVLink, each GPU a port       ├── NVLink ──┤        ├── NVLink ──┤
//   between units: rails                     rail 0 … rail k-1     rail 0 … rail k-1
//                                              └──────────│──────────┘        │
//   rail j of a unit meets rail j of the others           └───────────────────┘
//
// Every operation is one among the units, whose data is dealt over the rails, with a phase inside
// the units before and after. The network has room for all that the rails can send.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace shunt::sim {

inline constexpr int kEveryRail = -1;

// What is different about a node's rail.
struct LinkChange {
  int node = 0;
  int rail = kEveryRail;
  double bytes_per_s = 0;  // 0: as the others
  bool down = false;       // then no unit uses this rail: the others carry its share
};

// What happens while an operation runs.
struct Failure {
  enum class What : uint8_t {
    kNode,  // its process ends: the peers see that a latency later
    kLink,  // silence: the peers give up after lost_after_s
  };
  What what = What::kNode;
  int node = 0;
  double at_s = 0;  // after the operation's begin
};

struct Cluster {
  int nodes = 1;
  int gpus = 1;           // of a node; processes where there are no GPUs
  int nvlink_domain = 0;  // GPUs, in whole nodes or whole parts of a node; 0: those of a node
  double nvlink_bytes_per_s = 0;  // of a GPU, each direction
  double nvlink_latency_s = 0;

  int rails = 1;           // of a node
  double bytes_per_s = 0;  // of a rail, each direction
  double efficiency = 1;   // part of that which carries payload and Shunt's headers
  double burst_bytes = 0;  // passes at burst_bytes_per_s after a pause, as through a token bucket
  double burst_bytes_per_s = 0;
  double latency_s = 0;  // first byte out to first byte in
  double message_s = 0;  // a rail's own time for each frame
  double call_s = 0;     // a node's own time for each operation
  double lost_after_s = 3;

  // The executor's.
  uint64_t slice_bytes = 256 << 10;  // a block is cut into so many slices of at least this size
  uint32_t slices_max = 4096;
  uint32_t window = 4;  // slices at a time
  uint32_t piece_bytes = 256 << 10;
  uint32_t eager_bytes = 64 << 10;
  int aggregators = 0;  // further nodes, for the algorithm of that name

  // So many operations, one after the other on each node; the later half of them is measured. A
  // token bucket is only empty after some.
  int operations = 1;

  std::vector<LinkChange> links;
  std::vector<Failure> failures;

  int world() const { return nodes * gpus; }
  int domain() const { return nvlink_domain == 0 ? gpus : nvlink_domain; }
  int units() const { return world() / domain(); }
  int rails_of_unit() const { return static_cast<int>(int64_t{rails} * domain() / gpus); }
  int UnitOfNode(int node) const { return static_cast<int>(int64_t{node} * gpus / domain()); }
};

inline constexpr int kNodesMax = 65535;
inline constexpr int kGpusMax = 1024;

// INVALID_ARGUMENT names the field as description files do, its value and what is expected. All
// else here needs a cluster that has passed.
absl::Status Check(const Cluster& cluster);

// "node 3", or "node 3 rail 1" where nodes have several.
std::string RailName(const Cluster& cluster, int unit, int rail_of_unit);
// Payload bytes a second of rail `rail_of_unit` of each unit; 0: it is down.
std::vector<double> RailRates(const Cluster& cluster, int rail_of_unit);

}  // namespace shunt::sim
