// `shuntctl trace`: the records as a Chrome trace (JSON), which Perfetto and chrome://tracing show.
//
//   a node       one process of the trace
//   lanes of it  each rank of a communicator; each way to another node; transfers by route
//
// Calls that overlap on a lane get further lanes. Times are the first node's CLOCK_MONOTONIC in
// microseconds; the metadata says how the other nodes' clocks stand to it, and how well it is
// known.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "shunt/v1/records.pb.h"

namespace shunt::tools {

struct TraceText {
  std::string text;
  uint64_t events = 0;  // but for metadata
  uint64_t lanes = 0;
};
TraceText MakeTrace(const v1::GetRecordsResponse& records);

// The whole file or none of it: beside it first, then in its place. Errors name the file.
absl::Status WriteWhole(const std::string& path, const std::string& text);

}  // namespace shunt::tools
