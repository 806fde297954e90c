// What shunt-sim prints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/collectives/sim/predict.h"
#include "tools/output.h"

namespace shunt::tools {

struct Row {
  std::string algorithm;
  sim::Prediction prediction;
};

// All algorithms of one call.
struct Report {
  OpKind kind = OpKind::kAllReduce;
  uint64_t bytes = 0;
  int nodes = 0, ranks = 0;
  std::vector<Row> rows;

  // The row with the least time that has not failed; -1 if all have.
  int Best() const;
};

std::string Text(const Report& report);
void AddTo(const Report& report, Json* list);

}  // namespace shunt::tools
