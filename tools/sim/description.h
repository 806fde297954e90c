// What shunt-sim is told: a cluster and what to try on it, by the keys of a description file, which
// are flags too.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/collectives/sim/cluster.h"
#include "runtime/collectives/sim/predict.h"

namespace shunt::tools {

struct Description {
  std::string name;
  sim::Cluster cluster;
  std::vector<OpKind> kinds = {OpKind::kAllReduce};
  std::vector<uint64_t> sizes = {64 << 10, 1 << 20, 16 << 20};
  std::vector<Algorithm> algorithms;  // empty: all that the kind has
  sim::Method method = sim::Method::kAuto;
  int root = 0;
  // By key: where it was set, "file:line" or "--flag".
  std::map<std::string, std::string, std::less<>> set_at;
};

// As TOML has it; flags are strings.
using Value = std::variant<int64_t, double, bool, std::string>;

// A key with one value.
struct Key {
  std::string_view name;
  std::string_view help;
  absl::Status (*set)(Description* description, const Value& value);
};
absl::Span<const Key> Keys();
const Key* FindKey(std::string_view name);

// The keys whose value is a list.
absl::Status SetKinds(const std::vector<std::string>& names, Description* description);
absl::Status SetAlgorithms(const std::vector<std::string>& names, Description* description);
absl::Status SetSizes(const std::vector<Value>& values, Description* description);

// Of [[link]] and [[failure]].
absl::Status SetLinkKey(std::string_view key, const Value& value, sim::LinkChange* link);
absl::Status SetFailureKey(std::string_view key, const Value& value, sim::Failure* failure);

// sim::Check; its message begins with where the key was set.
absl::Status CheckDescription(const Description& description);

// Applies a file's text. INVALID_ARGUMENT begins with path and line.
absl::Status ApplyClusterToml(std::string_view text, std::string_view path,
                              Description* description);

// "node"; "\"fast\"".
std::string Show(const Value& value);

}  // namespace shunt::tools
