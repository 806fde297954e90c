#include "bench/harness/operation.h"

#include <algorithm>
#include <array>

namespace shunt::bench {
namespace {

struct Traits {
  std::string_view name;
  bool reduces;
  bool has_root;
  bool has_in_place;
  bool whole_buffer;  // S = n * count
};

constexpr std::array<Traits, kOperationCount> kTraits = {{
    {"all_reduce", true, false, true, false},
    {"reduce", true, true, true, false},
    {"broadcast", false, true, true, false},
    {"all_gather", false, false, true, true},
    {"reduce_scatter", true, false, true, true},
    {"all_to_all", false, false, false, true},
    {"all_to_all_v", false, false, false, true},
    {"gather", false, true, true, true},
    {"scatter", false, true, true, true},
    {"send_recv", false, false, false, false},
    {"barrier", false, false, false, false},
}};

const Traits& TraitsOf(Operation op) { return kTraits[static_cast<size_t>(op)]; }

}  // namespace

std::string_view Name(Operation op) { return TraitsOf(op).name; }
bool Reduces(Operation op) { return TraitsOf(op).reduces; }
bool HasRoot(Operation op) { return TraitsOf(op).has_root; }
bool HasInPlace(Operation op) { return TraitsOf(op).has_in_place; }

std::optional<Operation> ParseOperation(std::string_view name) {
  for (int i = 0; i < kOperationCount; ++i) {
    if (kTraits[i].name == name) return static_cast<Operation>(i);
  }
  return std::nullopt;
}

std::optional<DataType> ParseDataType(std::string_view name) {
  for (int i = 0; i < kDataTypeCount; ++i) {
    if (shunt::Name(static_cast<DataType>(i)) == name) return static_cast<DataType>(i);
  }
  return std::nullopt;
}

std::optional<Redop> ParseRedop(std::string_view name) {
  for (int i = 0; i < kRedopCount; ++i) {
    if (shunt::Name(static_cast<Redop>(i)) == name) return static_cast<Redop>(i);
  }
  return std::nullopt;
}

Problem MakeProblem(Operation op, DataType dtype, int ranks, uint64_t bytes) {
  Problem problem;
  problem.op = op;
  problem.dtype = dtype;
  problem.ranks = ranks;
  if (op == Operation::kBarrier) return problem;
  const uint64_t parts = TraitsOf(op).whole_buffer ? static_cast<uint64_t>(ranks) : 1;
  problem.count = std::max<uint64_t>(1, bytes / (parts * SizeOf(dtype)));
  return problem;
}

uint64_t SizeBytes(const Problem& problem) {
  const uint64_t parts = TraitsOf(problem.op).whole_buffer ? problem.ranks : 1;
  return problem.count * parts * SizeOf(problem.dtype);
}

double BusFactor(Operation op, int ranks) {
  const double n = ranks;
  switch (op) {
    case Operation::kAllReduce:
      return 2 * (n - 1) / n;
    case Operation::kAllGather:
    case Operation::kReduceScatter:
    case Operation::kAllToAll:
    case Operation::kAllToAllV:
    case Operation::kGather:
    case Operation::kScatter:
      return (n - 1) / n;
    default:
      return 1;
  }
}

uint64_t InputElements(const Problem& problem, int rank) {
  const uint64_t whole = problem.count * problem.ranks;
  switch (problem.op) {
    case Operation::kReduceScatter:
    case Operation::kAllToAll:
    case Operation::kAllToAllV:
      return whole;
    case Operation::kScatter:
      return rank == problem.root ? whole : 0;
    case Operation::kBroadcast:
      return rank == problem.root ? problem.count : 0;
    default:
      return problem.count;
  }
}

uint64_t OutputElements(const Problem& problem, int rank) {
  const uint64_t whole = problem.count * problem.ranks;
  switch (problem.op) {
    case Operation::kAllGather:
    case Operation::kAllToAll:
    case Operation::kAllToAllV:
      return whole;
    case Operation::kGather:
      return rank == problem.root ? whole : 0;
    case Operation::kReduce:
      return rank == problem.root ? problem.count : 0;
    default:
      return problem.count;
  }
}

uint64_t InPlaceOffset(const Problem& problem, int rank) {
  switch (problem.op) {
    case Operation::kAllGather:
    case Operation::kReduceScatter:
      return rank * problem.count;
    case Operation::kGather:
    case Operation::kScatter:
      return rank == problem.root ? rank * problem.count : 0;
    default:
      return 0;
  }
}

bool OutputInsideInput(Operation op) {
  return op == Operation::kReduceScatter || op == Operation::kScatter;
}

VectorLayout LayoutOf(const Problem& problem, int rank) {
  // Pairs (i, j) with the same (i + j) mod n exchange the same count: residues alternate between
  // half and one and a half of the mean, so every rank still moves n * count elements in all.
  const int n = problem.ranks;
  const uint64_t spread = problem.count / 2;
  VectorLayout layout;
  uint64_t displacement = 0;
  for (int peer = 0; peer < n; ++peer) {
    const int residue = (rank + peer) % n;
    uint64_t count = problem.count;
    const bool unpaired = n % 2 == 1 && residue == n - 1;
    if (!unpaired) count = residue % 2 == 0 ? count - spread : count + spread;
    layout.counts.push_back(count);
    layout.displacements.push_back(displacement);
    displacement += count;
  }
  return layout;
}

std::vector<Segment> ExpectedOutput(const Problem& problem, int rank) {
  const int n = problem.ranks;
  const uint64_t count = problem.count;
  std::vector<Segment> segments;
  switch (problem.op) {
    case Operation::kAllReduce:
      return {{0, count, -1, 0}};
    case Operation::kReduce:
      if (rank == problem.root) segments.push_back({0, count, -1, 0});
      return segments;
    case Operation::kReduceScatter:
      return {{0, count, -1, rank * count}};
    case Operation::kBroadcast:
      return {{0, count, problem.root, 0}};
    case Operation::kScatter:
      return {{0, count, problem.root, rank * count}};
    case Operation::kSendRecv:
      return {{0, count, (rank + n - 1) % n, 0}};
    case Operation::kGather:
      if (rank != problem.root) return segments;
      [[fallthrough]];
    case Operation::kAllGather:
      for (int r = 0; r < n; ++r) segments.push_back({r * count, count, r, 0});
      return segments;
    case Operation::kAllToAll:
      for (int r = 0; r < n; ++r) segments.push_back({r * count, count, r, rank * count});
      return segments;
    case Operation::kAllToAllV: {
      const VectorLayout mine = LayoutOf(problem, rank);
      for (int r = 0; r < n; ++r) {
        const VectorLayout theirs = LayoutOf(problem, r);
        segments.push_back({mine.displacements[r], mine.counts[r], r, theirs.displacements[rank]});
      }
      return segments;
    }
    case Operation::kBarrier:
      return segments;
  }
  return segments;
}

}  // namespace shunt::bench
