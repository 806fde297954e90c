#include "runtime/exchange/block_layout.h"

namespace shunt::exchange {

uint64_t ElementsOf(const Shape& shape, const PairTable* pairs, uint32_t block, uint32_t slice) {
  uint64_t sum = 0;
  ForEachExtent(shape, pairs, block, slice, [&](const Extent& extent) { sum += extent.count; });
  return sum;
}

}  // namespace shunt::exchange
