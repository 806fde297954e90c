// Whether strided things share an element, without listing them.
#pragma once

#include <cstdint>

#include "runtime/p2p/descriptor.h"

namespace shunt::p2p {

// True only if no byte is in both. False may also mean that the shapes are too different to tell;
// sets of equal strides, as tensors interleaved in one allocation are, are told exactly but for
// periods that only one of them has. The region is not looked at.
//
// Each step takes one from `steps`, and there is no answer but false once it is 0: sets come from
// others, and a pair of theirs may cost thousands of steps where one of a cache costs three or
// seven. Who compares many pairs has one number for all of them. A step is some tens of
// nanoseconds.
bool SurelyDisjoint(const StridedSet& a, const StridedSet& b, uint32_t* steps);

// first, first + step, ...: `count` numbers. step >= 1 where count > 1.
struct Progression {
  uint64_t first = 0;
  uint64_t count = 0;
  uint64_t step = 1;
};

// True if some number is in both. Exact; O(log step), by the extended Euclidean algorithm.
bool Intersect(const Progression& a, const Progression& b);

}  // namespace shunt::p2p
