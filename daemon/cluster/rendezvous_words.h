// Words about communicators and ranks of several nodes. Pure functions.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "daemon/cluster/rendezvous_table.h"

namespace shunt::cluster {

// "rank 3 on node b (pid 12, 'worker')".
std::string RankWords(std::string_view node, const RankInfo& rank);

// "2-5, 7, 9 (rank 9 on node c (pid 4) came and went: its process ended)": the ranks below
// `world_size` that `has` does not take. Bounded: the rest is counted.
std::string MissingRanks(int32_t world_size, const std::function<bool(int32_t)>& has,
                         const std::map<int32_t, std::string>& withdrawn);

// INVALID_ARGUMENT unless the text has min to max bytes and no control characters.
absl::Status CheckText(std::string_view what, std::string_view text, size_t min, size_t max);

}  // namespace shunt::cluster
