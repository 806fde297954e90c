// Whether an operation fits the small form of the parameters, and what it is there. The host's; no
// driver.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/gpu/kernels/params.h"

namespace shunt::gpu {

inline bool FitsSmall(const Signals& signals) { return signals.count <= Small::kRanks; }

inline bool FitsSmall(const ReduceParams& params) {
  return std::max(params.sources, params.destinations) <= Small::kRanks &&
         FitsSmall(params.signals);
}

inline bool FitsSmall(const SpreadParams& params) {
  return std::max(params.segments, params.destinations) <= Small::kRanks &&
         FitsSmall(params.signals);
}

inline bool FitsSmall(const MoveParams& params) {
  return (params.run != nullptr || params.runs <= Small::kRuns) && FitsSmall(params.signals);
}

// Of what fits. What lies behind the counts is copied, and not looked at.
inline SignalsOf<Small> ToSmall(const Signals& signals) {
  SignalsOf<Small> small;
  static_cast<SignalsHead&>(small) = signals;
  std::copy_n(signals.word, Small::kRanks, small.word);
  std::copy_n(signals.values, Small::kRanks, small.values);
  return small;
}

inline ReduceParamsOf<Small> ToSmall(const ReduceParams& params) {
  ReduceParamsOf<Small> small;
  static_cast<ReduceHead&>(small) = params;
  std::copy_n(params.source, Small::kRanks, small.source);
  std::copy_n(params.destination, Small::kRanks, small.destination);
  std::copy_n(params.scalar, Small::kRanks, small.scalar);
  small.signals = ToSmall(params.signals);
  return small;
}

inline SpreadParamsOf<Small> ToSmall(const SpreadParams& params) {
  SpreadParamsOf<Small> small;
  static_cast<SpreadHead&>(small) = params;
  std::copy_n(params.source, Small::kRanks, small.source);
  std::copy_n(params.destination, Small::kRanks, small.destination);
  small.signals = ToSmall(params.signals);
  return small;
}

inline MoveParamsOf<Small> ToSmall(const MoveParams& params) {
  MoveParamsOf<Small> small;
  static_cast<MoveHead&>(small) = params;
  std::copy_n(params.few, Small::kRuns, small.few);
  small.signals = ToSmall(params.signals);
  return small;
}

static_assert(sizeof(ReduceParamsOf<Small>) <= 400 && sizeof(SpreadParamsOf<Small>) <= 400 &&
              sizeof(MoveParamsOf<Small>) <= 400);

}  // namespace shunt::gpu
