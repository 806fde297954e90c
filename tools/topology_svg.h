// A picture of a node: its NUMA nodes with CPUs, GPUs and NICs, and its links to other nodes.
#pragma once

#include <string>
#include <vector>

#include "shunt/v1/admin.pb.h"

namespace shunt::tools {

struct NicRate {
  std::string name;
  double sent = 0, received = 0;  // bytes per second
};
struct PictureLink {
  std::string node;  // printable
  std::string role;
  std::string state;
  bool connected = false;
  double latency_seconds = 0;  // measured; 0: not
  double bytes_per_second = 0;
  double sent = 0, received = 0;  // bytes per second, now
};

// One SVG document that needs nothing else, for light and dark surroundings.
std::string TopologySvg(const v1::GetTopologyResponse& topology, const std::vector<NicRate>& nics,
                        const std::vector<PictureLink>& links);

}  // namespace shunt::tools
