#include "runtime/collectives/sim/cluster.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace shunt::sim {
namespace {

template <class... Args>
absl::Status Wrong(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

struct Range {
  std::string_view key;
  double value, min, max;
  std::string_view expected;
};

absl::string_view Word(std::string_view text) { return {text.data(), text.size()}; }

absl::Status CheckNumbers(const Cluster& c) {
  constexpr double kMax = 1e15, kLong = 1e6;
  constexpr double kTiny = 1;  // a byte a second
  const Range ranges[] = {
      {"nodes", double(c.nodes), 1, kNodesMax, "1 to 65535"},
      {"gpus", double(c.gpus), 1, kGpusMax, "1 to 1024"},
      {"rails", double(c.rails), 1, kGpusMax, "1 to 1024"},
      {"rate", c.bytes_per_s, kTiny, kMax, "at least 1 byte a second"},
      {"efficiency", c.efficiency, 1e-3, 1, "0.001 to 1"},
      {"burst", c.burst_bytes, 0, kMax, "0 bytes or more"},
      {"burst_rate", c.burst_bytes_per_s, 0, kMax, "0 (no limit) or more bytes a second"},
      {"latency", c.latency_s, 0, kLong, "0 s or more"},
      {"message_overhead", c.message_s, 0, kLong, "0 s or more"},
      {"call_overhead", c.call_s, 0, kLong, "0 s or more"},
      {"lost_after", c.lost_after_s, 0, kLong, "0 s or more"},
      {"nvlink_latency", c.nvlink_latency_s, 0, kLong, "0 s or more"},
      {"slice", double(c.slice_bytes), 1, kMax, "at least 1 byte"},
      {"slices_max", double(c.slices_max), 1, 1 << 20, "1 to 1048576"},
      {"window", double(c.window), 1, 255, "1 to 255"},
      {"frame", double(c.piece_bytes), 64, 1 << 20, "64 bytes to 1 MiB"},
      {"eager", double(c.eager_bytes), 0, 1 << 20, "0 to 1 MiB"},
      {"aggregators", double(c.aggregators), 0, kNodesMax, "0 to 65535"},
      {"operations", double(c.operations), 1, 1000, "1 to 1000"},
  };
  for (const Range& r : ranges) {
    // Also refuses what is no number.
    if (r.value >= r.min && r.value <= r.max) continue;
    return Wrong(Word(r.key), " is ", r.value, ", expected ", Word(r.expected));
  }
  return absl::OkStatus();
}

absl::Status CheckDomain(const Cluster& c) {
  const int d = c.domain();
  if (d < 1 || int64_t{c.nodes} * c.gpus % d != 0 || (d % c.gpus != 0 && c.gpus % d != 0)) {
    return Wrong("nvlink_domain is ", d, " GPUs, expected whole nodes of ", c.gpus,
                 " GPUs that divide the ", c.nodes, " nodes, or equal parts of a node");
  }
  if (d > 1 && !(c.nvlink_bytes_per_s >= 1 && c.nvlink_bytes_per_s <= 1e15)) {
    return Wrong("nvlink_rate is ", c.nvlink_bytes_per_s,
                 ", expected at least 1 byte a second for ", d, " GPUs of a domain");
  }
  if (int64_t{c.rails} * d % c.gpus != 0) {
    return Wrong("rails is ", c.rails, ", expected a multiple of the ", c.gpus / d,
                 " NVLink domains of a node");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Check(const Cluster& c) {
  if (absl::Status s = CheckNumbers(c); !s.ok()) return s;
  if (absl::Status s = CheckDomain(c); !s.ok()) return s;
  for (const LinkChange& link : c.links) {
    if (link.node < 0 || link.node >= c.nodes) {
      return Wrong("link.node is ", link.node, ", expected 0 to ", c.nodes - 1);
    }
    if (link.rail < kEveryRail || link.rail >= c.rails) {
      return Wrong("link.rail is ", link.rail, ", expected 0 to ", c.rails - 1);
    }
    if (!link.down && !(link.bytes_per_s >= 1 && link.bytes_per_s <= 1e15)) {
      return Wrong("link.rate is ", link.bytes_per_s,
                   ", expected at least 1 byte a second, or down = true");
    }
  }
  for (const Failure& failure : c.failures) {
    if (failure.node < 0 || failure.node >= c.nodes) {
      return Wrong("failure.node is ", failure.node, ", expected 0 to ", c.nodes - 1);
    }
    if (!(failure.at_s >= 0 && failure.at_s <= 1e6)) {
      return Wrong("failure.at is ", failure.at_s, " s, expected 0 s or more");
    }
  }
  if (c.units() == 1) return absl::OkStatus();
  for (int rail = 0; rail < c.rails_of_unit(); ++rail) {
    const std::vector<double> rates = RailRates(c, rail);
    if (*std::min_element(rates.begin(), rates.end()) > 0) return absl::OkStatus();
  }
  return Wrong("link.down leaves no rail that works on every node, expected at least one of ",
               c.rails_of_unit());
}

namespace {

// Where a unit's rail is.
void Locate(const Cluster& c, int unit, int rail_of_unit, int* node, int* rail) {
  const int d = c.domain();
  if (d >= c.gpus) {
    *node = unit * (d / c.gpus) + rail_of_unit / c.rails;
    *rail = rail_of_unit % c.rails;
    return;
  }
  const int parts = c.gpus / d;
  *node = unit / parts;
  *rail = unit % parts * c.rails_of_unit() + rail_of_unit;
}

}  // namespace

std::string RailName(const Cluster& c, int unit, int rail_of_unit) {
  if (unit >= c.units()) return absl::StrCat("aggregator ", unit - c.units());
  int node, rail;
  Locate(c, unit, rail_of_unit, &node, &rail);
  return c.rails == 1 ? absl::StrCat("node ", node) : absl::StrCat("node ", node, " rail ", rail);
}

std::vector<double> RailRates(const Cluster& c, int rail_of_unit) {
  std::vector<double> rates(c.units(), c.bytes_per_s * c.efficiency);
  if (c.links.empty()) return rates;
  for (int unit = 0; unit < c.units(); ++unit) {
    int node, rail;
    Locate(c, unit, rail_of_unit, &node, &rail);
    for (const LinkChange& link : c.links) {
      if (link.node != node || (link.rail != kEveryRail && link.rail != rail)) continue;
      rates[unit] = link.down ? 0 : link.bytes_per_s * c.efficiency;
    }
  }
  return rates;
}

}  // namespace shunt::sim
