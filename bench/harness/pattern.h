// Test data for which every order of summation is exact, so that results compare bit by bit.
#pragma once

#include <cstdint>

#include "bench/harness/operation.h"

namespace shunt::bench {

// Writes rank's input, InputElements() elements. Reducing operations get small whole numbers whose
// sum (product, ...) over all ranks the data type holds exactly; the others get arbitrary bits.
void FillInput(const Problem& problem, int rank, void* input);

// This rank's factor for Redop::kPremulSum, encoded in the problem's data type at `scalar` (8
// bytes).
void FillScalar(const Problem& problem, int rank, void* scalar);

// How many elements of rank's output differ in any bit from what the operation must give. `output`
// need not be aligned.
uint64_t CountWrong(const Problem& problem, int rank, const void* output);

// How many elements of rank's input differ from what FillInput wrote: an operation out of place
// must leave it alone.
uint64_t CountChangedInput(const Problem& problem, int rank, const void* input);

}  // namespace shunt::bench
