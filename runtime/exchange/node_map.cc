#include "runtime/exchange/node_map.h"

#include <unordered_map>

namespace shunt::exchange {

absl::StatusOr<NodeMap> NodeMap::Make(const std::vector<int32_t>& labels) {
  if (labels.empty()) {
    return absl::InvalidArgumentError("a map of no ranks; expected a node for each of 1 or more");
  }
  NodeMap map;
  std::unordered_map<int32_t, int32_t> numbers;
  for (size_t rank = 0; rank < labels.size(); ++rank) {
    const auto [it, fresh] =
        numbers.emplace(labels[rank], static_cast<int32_t>(map.ranks_of.size()));
    if (fresh) map.ranks_of.emplace_back();
    std::vector<int32_t>& on_node = map.ranks_of[it->second];
    map.node_of.push_back(it->second);
    map.index_on_node.push_back(static_cast<int32_t>(on_node.size()));
    on_node.push_back(static_cast<int32_t>(rank));
  }
  return map;
}

}  // namespace shunt::exchange
