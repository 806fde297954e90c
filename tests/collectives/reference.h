// An independent statement of what ReduceInto computes, one element at a time: the small float
// formats by tables of all their values, nothing shared with the code under test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/core/types.h"

namespace shunt::testing {

// The value of the small float with these bits; exact. NaN and infinities as in the format.
double DecodeSmallFloat(DataType type, uint32_t bits);

// The nearest value's bits, ties to even. `saturate`: no infinity (float8 only).
uint32_t EncodeSmallFloat(DataType type, float value, bool saturate);

// The result for one element: contributions[k] and factors[k] hold rank k's element and premul
// factor in the low bytes, the result likewise.
uint64_t ReferenceReduce(DataType type, Redop redop, int divisor,
                         const std::vector<uint64_t>& contributions,
                         const std::vector<uint64_t>& factors);

}  // namespace shunt::testing
