// `shuntctl stragglers`: by how much each rank comes later than the first to the collectives that
// are recorded, on one clock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/recorder/lateness.h"
#include "shunt/v1/records.pb.h"

namespace shunt::tools {

struct StragglerRank {
  int rank = 0;
  std::string node;
  int32_t pid = 0;
  recorder::RankLateness lateness;
};

struct CommunicatorLateness {
  std::string name, job, state;
  uint64_t epoch = 0;
  uint64_t operations = 0;  // that every rank's call is recorded of
  uint64_t uncertainty_ns = 0;
  std::vector<StragglerRank> ranks;  // the latest by its median first
};

// Communicators of two ranks or more with any such operation.
std::vector<CommunicatorLateness> FindStragglers(const v1::GetRecordsResponse& records);

}  // namespace shunt::tools
