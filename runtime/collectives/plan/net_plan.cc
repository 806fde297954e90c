#include "runtime/collectives/plan/net_plan.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "runtime/collectives/plan/net_definition.h"
#include "runtime/collectives/plan/net_steps.h"

namespace shunt {
namespace {

constexpr std::string_view kNames[kAlgorithmCount] = {
    "ring",     "double_tree", "halving_doubling", "recursive_doubling", "bruck",      "pat",
    "pairwise", "direct",      "aggregated",       "binomial",           "pat_bounded"};

absl::string_view Word(std::string_view name) { return {name.data(), name.size()}; }

const net::Plan& PlanOf(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kRing:
      return net::kRing;
    case Algorithm::kDoubleTree:
      return net::kDoubleTree;
    case Algorithm::kHalvingDoubling:
      return net::kHalvingDoubling;
    case Algorithm::kRecursiveDoubling:
      return net::kRecursiveDoubling;
    case Algorithm::kBruck:
      return net::kBruck;
    case Algorithm::kPat:
      return net::kPat;
    case Algorithm::kPatBounded:
      return net::kPatBounded;
    case Algorithm::kAggregated:
      return net::kAggregated;
    case Algorithm::kBinomial:
      return net::kBinomial;
    case Algorithm::kPairwise:
    case Algorithm::kDirect:
      break;
  }
  return net::kExchange;
}

template <class... Args>
absl::Status Invalid(const NetSpec& spec, const Args&... args) {
  return absl::InvalidArgumentError(
      absl::StrCat(Word(Name(spec.kind)), " by ", Word(Name(spec.algorithm)), ": ", args...));
}

}  // namespace

std::string_view Name(Algorithm a) {
  return IsValid(a) ? kNames[static_cast<int>(a)] : std::string_view("unknown");
}

absl::StatusOr<Algorithm> AlgorithmOf(std::string_view name) {
  std::string all;
  for (int i = 0; i < kAlgorithmCount; ++i) {
    if (kNames[i] == name) return static_cast<Algorithm>(i);
    absl::StrAppend(&all, i == 0 ? "" : ", ", Word(kNames[i]));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("algorithm \"", Word(name), "\", expected one of ", all));
}

bool Supports(Algorithm algorithm, OpKind kind) {
  const bool all_reduce = kind == OpKind::kAllReduce || kind == OpKind::kBarrier;
  const bool scatters = kind == OpKind::kReduceScatter || kind == OpKind::kAllGather;
  const bool spreads = kind == OpKind::kBroadcast || kind == OpKind::kReduce;
  const bool deals = kind == OpKind::kGather || kind == OpKind::kScatter;
  // Who carries a block of an all_to_all_v on does not know its size: only plans of one hop do.
  const bool exchanges = kind == OpKind::kAllToAll || kind == OpKind::kAllToAllV;
  switch (algorithm) {
    case Algorithm::kRing:
      return all_reduce || scatters || spreads;
    case Algorithm::kDoubleTree:
      return all_reduce || spreads;
    case Algorithm::kHalvingDoubling:
      return all_reduce || scatters;
    case Algorithm::kRecursiveDoubling:
      return all_reduce;
    case Algorithm::kBruck:
      return kind == OpKind::kAllGather || kind == OpKind::kAllToAll;
    case Algorithm::kPat:
    case Algorithm::kPatBounded:
      return scatters;
    case Algorithm::kPairwise:
      return all_reduce || scatters || deals || exchanges;
    case Algorithm::kDirect:
      return all_reduce || scatters || spreads || deals || exchanges;
    case Algorithm::kAggregated:
      return all_reduce || kind == OpKind::kReduce || kind == OpKind::kReduceScatter;
    case Algorithm::kBinomial:
      return spreads || deals;
  }
  return false;
}

absl::Status ValidateNetSpec(const NetSpec& spec) {
  if (!IsValid(spec.kind)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "unknown operation ", static_cast<int>(spec.kind), ", expected 0 to ", kOpKindCount - 1));
  }
  if (!IsValid(spec.algorithm)) {
    return Invalid(spec, "algorithm ", static_cast<int>(spec.algorithm), ", expected 0 to ",
                   kAlgorithmCount - 1);
  }
  if (!Supports(spec.algorithm, spec.kind)) {
    std::string others;
    for (int i = 0; i < kAlgorithmCount; ++i) {
      if (!Supports(static_cast<Algorithm>(i), spec.kind)) continue;
      absl::StrAppend(&others, others.empty() ? "" : ", ", Word(kNames[i]));
    }
    return Invalid(spec, "there is no such plan, expected ",
                   others.empty() ? "another operation" : others);
  }
  if (spec.participants < 1 || spec.participants > kParticipantsMax) {
    return Invalid(spec, spec.participants, " participants, expected 1 to ", kParticipantsMax);
  }
  if (HasRoot(spec.kind) && (spec.root < 0 || spec.root >= spec.participants)) {
    return Invalid(spec, "root ", spec.root, ", expected 0 to ", spec.participants - 1);
  }
  const bool aggregated = spec.algorithm == Algorithm::kAggregated;
  if (aggregated && (spec.aggregators < 1 || spec.aggregators > kParticipantsMax)) {
    return Invalid(spec, spec.aggregators, " aggregators, expected 1 to ", kParticipantsMax);
  }
  if (!aggregated && spec.aggregators != 0) {
    return Invalid(spec, spec.aggregators, " aggregators, expected 0");
  }
  return absl::OkStatus();
}

uint32_t BlockCount(const NetSpec& spec) {
  const auto n = static_cast<uint32_t>(spec.participants);
  switch (net::PlanKind(spec.kind)) {
    case OpKind::kAllReduce:
      switch (spec.algorithm) {
        case Algorithm::kDoubleTree:
          return 2;
        case Algorithm::kHalvingDoubling:
          return std::bit_floor(n);
        case Algorithm::kRecursiveDoubling:
          return 1;
        case Algorithm::kAggregated:
          return static_cast<uint32_t>(spec.aggregators);
        default:
          return n;
      }
    case OpKind::kBroadcast:
    case OpKind::kReduce:
      if (spec.algorithm == Algorithm::kDoubleTree) return 2;
      return spec.algorithm == Algorithm::kAggregated ? static_cast<uint32_t>(spec.aggregators) : 1;
    case OpKind::kAllToAll:
      return n * n;
    default:
      return n;
  }
}

BlockRange BlockRangeOf(const NetSpec& spec, uint32_t block, uint64_t elements) {
  if (net::CombinesVectors(spec)) return {0, elements};
  return PartOf(elements, std::max<uint64_t>(1, BlockCount(spec)), block);
}

uint32_t NetStepCount(const NetSpec& spec, int participant) {
  NetSpec plan = spec;
  plan.kind = net::PlanKind(spec.kind);
  return spec.participants == 1 ? 0 : PlanOf(spec.algorithm).count(plan, participant);
}

NetStep NetStepAt(const NetSpec& spec, int participant, uint32_t index) {
  NetSpec plan = spec;
  plan.kind = net::PlanKind(spec.kind);
  return PlanOf(spec.algorithm).at(plan, participant, index);
}

}  // namespace shunt
