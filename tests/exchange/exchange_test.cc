// Every collective, by every algorithm, over a network whose messages take their own time.
#include <catch2/catch.hpp>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/exchange/cluster.h"

namespace shunt::testing {
namespace {

constexpr OpKind kKinds[] = {OpKind::kBarrier,   OpKind::kAllReduce, OpKind::kReduce,
                             OpKind::kBroadcast, OpKind::kAllGather, OpKind::kReduceScatter,
                             OpKind::kAllToAll,  OpKind::kGather,    OpKind::kScatter};

std::vector<int32_t> Repeated(int nodes, int each) {
  std::vector<int32_t> map;
  for (int n = 0; n < nodes; ++n) map.insert(map.end(), static_cast<size_t>(each), n);
  return map;
}

std::string_view Text(const CallCase& c) {
  static std::string text;
  text = absl::StrCat(absl::string_view(Name(c.call.kind).data(), Name(c.call.kind).size()), " by ",
                      absl::string_view(Name(c.algorithm).data(), Name(c.algorithm).size()), ", ",
                      c.node_of.size(), " ranks, count ", c.call.count, ", root ", c.call.root,
                      ", slices ", c.slices, c.in_place ? ", in place" : "");
  return text;
}

uint32_t Element(const Cluster& cluster, int rank, uint64_t index) {
  uint32_t value;
  std::memcpy(&value, cluster.input(rank).data() + index * 4, 4);
  return value;
}

// What uint32 calls give, by the definition of each.
std::vector<uint32_t> Expected(const Cluster& cluster, const CallCase& c, int rank) {
  const int n = cluster.map().world();
  const uint64_t count = c.call.count;
  std::vector<uint32_t> want;
  const auto combined = [&](uint64_t index) {
    uint32_t acc = 0;
    for (int r = 0; r < n; ++r) {
      const uint32_t x = Element(cluster, r, index);
      switch (c.call.redop) {
        case Redop::kMin:
          acc = r == 0 ? x : std::min(acc, x);
          break;
        case Redop::kMax:
          acc = r == 0 ? x : std::max(acc, x);
          break;
        case Redop::kProd:
          acc = r == 0 ? x : acc * x;
          break;
        case Redop::kPremulSum:
          acc += x * static_cast<uint32_t>(cluster.Factor(r));
          break;
        default:
          acc += x;
      }
    }
    return c.call.redop == Redop::kAvg ? acc / static_cast<uint32_t>(n) : acc;
  };
  switch (c.call.kind) {
    case OpKind::kAllReduce:
      for (uint64_t i = 0; i < count; ++i) want.push_back(combined(i));
      break;
    case OpKind::kReduce:
      for (uint64_t i = 0; rank == c.call.root && i < count; ++i) want.push_back(combined(i));
      break;
    case OpKind::kBroadcast:
      for (uint64_t i = 0; i < count; ++i) want.push_back(Element(cluster, c.call.root, i));
      break;
    case OpKind::kGather:
      if (rank != c.call.root) break;
      [[fallthrough]];
    case OpKind::kAllGather:
      for (int r = 0; r < n; ++r) {
        for (uint64_t i = 0; i < count; ++i) want.push_back(Element(cluster, r, i));
      }
      break;
    case OpKind::kReduceScatter:
      for (uint64_t i = 0; i < count; ++i) {
        want.push_back(combined(static_cast<uint64_t>(rank) * count + i));
      }
      break;
    case OpKind::kScatter:
      for (uint64_t i = 0; i < count; ++i) {
        want.push_back(Element(cluster, c.call.root, static_cast<uint64_t>(rank) * count + i));
      }
      break;
    case OpKind::kAllToAll:
      for (int r = 0; r < n; ++r) {
        for (uint64_t i = 0; i < count; ++i) {
          want.push_back(Element(cluster, r, static_cast<uint64_t>(rank) * count + i));
        }
      }
      break;
    default:
      break;
  }
  return want;
}

void RunAndCheck(const CallCase& c) {
  INFO(Text(c));
  Cluster cluster(c);
  REQUIRE(cluster.Run() == "");
  for (int rank = 0; rank < cluster.map().world(); ++rank) {
    INFO("rank " << rank);
    const std::vector<uint32_t> want = Expected(cluster, c, rank);
    const std::vector<std::byte> got = cluster.Output(rank);
    REQUIRE(got.size() == want.size() * 4);
    REQUIRE((want.empty() || std::memcmp(got.data(), want.data(), got.size()) == 0));
  }
  CHECK(cluster.MarginsWhole());
}

bool HasInPlace(OpKind kind) { return kind != OpKind::kBarrier && kind != OpKind::kAllToAll; }

CallCase MakeCase(OpKind kind, Algorithm algorithm, std::vector<int32_t> node_of) {
  CallCase c;
  c.call.kind = kind;
  c.call.dtype = DataType::kUint32;
  c.call.redop = Redop::kSum;
  c.node_of = std::move(node_of);
  c.algorithm = algorithm;
  if (algorithm == Algorithm::kAggregated) c.aggregators = 2;
  return c;
}

void ForEachPlan(const std::function<void(OpKind, Algorithm)>& body) {
  for (const OpKind kind : kKinds) {
    for (int a = 0; a < kAlgorithmCount; ++a) {
      const auto algorithm = static_cast<Algorithm>(a);
      if (Supports(algorithm, kind)) body(kind, algorithm);
    }
  }
}

TEST_CASE("every collective by every algorithm, for any number of nodes") {
  const int nodes = GENERATE(1, 2, 3, 4, 5, 7, 8);
  ForEachPlan([&](OpKind kind, Algorithm algorithm) {
    for (const uint64_t count : {1, 5000}) {
      for (const bool in_place : {false, true}) {
        if (in_place && !HasInPlace(kind)) continue;
        CallCase c = MakeCase(kind, algorithm, Repeated(nodes, 1));
        c.call.count = kind == OpKind::kBarrier ? 0 : count;
        c.call.root = HasRoot(kind) ? nodes - 1 : 0;
        c.slices = count == 1 ? 1 : 3;
        c.in_place = in_place;
        RunAndCheck(c);
      }
    }
  });
}

TEST_CASE("every collective by every algorithm, where one message leaves at a time") {
  const int nodes = GENERATE(1, 4, 5);
  ForEachPlan([&](OpKind kind, Algorithm algorithm) {
    CallCase c = MakeCase(kind, algorithm, Repeated(nodes, 1));
    c.call.count = kind == OpKind::kBarrier ? 0 : 5000;
    c.call.root = HasRoot(kind) ? nodes - 1 : 0;
    c.slices = 9;
    c.window = 3;
    c.sends_max = 1;
    RunAndCheck(c);
  });
}

TEST_CASE("several ranks on a node, uneven and in any order") {
  const std::vector<int32_t> map =
      GENERATE(std::vector<int32_t>{0, 0, 1, 1}, std::vector<int32_t>{0, 1, 0, 1, 0},
               std::vector<int32_t>{2, 0, 1, 1, 1, 0}, std::vector<int32_t>{3, 3, 3});
  ForEachPlan([&](OpKind kind, Algorithm algorithm) {
    for (const int root : {0, static_cast<int>(map.size()) - 1}) {
      for (const bool in_place : {false, true}) {
        if (in_place && !HasInPlace(kind)) continue;
        if (root != 0 && !HasRoot(kind)) continue;
        CallCase c = MakeCase(kind, algorithm, map);
        c.call.count = kind == OpKind::kBarrier ? 0 : 1001;
        c.call.root = root;
        c.slices = 2;
        c.in_place = in_place;
        RunAndCheck(c);
      }
    }
  });
}

TEST_CASE("every reduction: averages are divided once, factors applied once") {
  const std::vector<int32_t> map =
      GENERATE(std::vector<int32_t>{0, 1, 2}, std::vector<int32_t>{0, 0, 1, 2, 2, 2});
  for (const OpKind kind : {OpKind::kAllReduce, OpKind::kReduce, OpKind::kReduceScatter}) {
    for (int a = 0; a < kAlgorithmCount; ++a) {
      const auto algorithm = static_cast<Algorithm>(a);
      if (!Supports(algorithm, kind)) continue;
      for (int op = 0; op < kRedopCount; ++op) {
        CallCase c = MakeCase(kind, algorithm, map);
        c.call.count = 300;
        c.call.root = 1;
        c.call.redop = static_cast<Redop>(op);
        // Sums that stay in 32 bits would hide a division too early.
        RunAndCheck(c);
      }
    }
  }
}

TEST_CASE("an all_reduce gives all ranks the same bits, whenever messages come") {
  for (int a = 0; a < kAlgorithmCount; ++a) {
    const auto algorithm = static_cast<Algorithm>(a);
    if (!Supports(algorithm, OpKind::kAllReduce)) continue;
    CallCase c = MakeCase(OpKind::kAllReduce, algorithm, {0, 0, 1, 2, 2, 3, 4});
    c.call.dtype = DataType::kFloat32;
    c.call.count = 3000;
    c.slices = 3;
    std::vector<std::byte> first;
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      c.network_seed = seed;
      Cluster cluster(c);
      INFO(Text(c));
      REQUIRE(cluster.Run() == "");
      if (first.empty()) first = cluster.Output(0);
      for (int rank = 0; rank < cluster.map().world(); ++rank) {
        REQUIRE(cluster.Output(rank) == first);
      }
    }
  }
}

TEST_CASE("blocks of all_to_all_v may have any size, also none") {
  CallCase c = MakeCase(OpKind::kAllToAllV, Algorithm::kPairwise, {0, 1, 1, 2, 0});
  const int n = 5;
  c.slices = 3;
  for (int s = 0; s < n; ++s) {
    c.pair_counts.emplace_back();
    for (int d = 0; d < n; ++d) {
      c.pair_counts.back().push_back((s + d) % 3 == 0 ? 0
                                                      : static_cast<uint64_t>(s * 700 + d * 31));
    }
  }
  for (const Algorithm algorithm : {Algorithm::kPairwise, Algorithm::kDirect}) {
    c.algorithm = algorithm;
    Cluster cluster(c);
    INFO(Text(c));
    REQUIRE(cluster.Run() == "");
    for (int d = 0; d < n; ++d) {
      std::vector<uint32_t> want;
      for (int s = 0; s < n; ++s) {
        uint64_t begin = 0;
        for (int k = 0; k < d; ++k) begin += c.pair_counts[s][k];
        for (uint64_t i = 0; i < c.pair_counts[s][d]; ++i) {
          want.push_back(Element(cluster, s, begin + i));
        }
      }
      const std::vector<std::byte> got = cluster.Output(d);
      REQUIRE(got.size() == want.size() * 4);
      CHECK(std::memcmp(got.data(), want.data(), got.size()) == 0);
    }
  }
}

TEST_CASE("a ring carries the least number of bytes, however many ranks a node has") {
  const int each = GENERATE(1, 2, 3);
  CallCase c = MakeCase(OpKind::kAllReduce, Algorithm::kRing, Repeated(4, each));
  c.call.count = 1 << 16;
  c.slices = 4;
  Cluster cluster(c);
  REQUIRE(cluster.Run() == "");
  for (int node = 0; node < 4; ++node) CHECK(cluster.PayloadSent(node) == (2 * 3 * 4 << 16) / 4);
}

}  // namespace
}  // namespace shunt::testing
