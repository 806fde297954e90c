#include "runtime/p2p/geometry.h"

namespace shunt::p2p {

Geometry::Geometry(const StridedSet& set, uint32_t region)
    : region_(region), base_(set.base), length_(set.length) {
  uint64_t counts[3];
  int dims = 0;
  for (const Dimension& d : set.dims) {
    if (d.count == 1) continue;
    const auto stride = static_cast<uint64_t>(d.stride);
    // A dimension that goes on where the one inside it ends is more of the same.
    if (dims > 0 && stride_[dims - 1] == d.count * stride) {
      counts[dims - 1] *= d.count;
      stride_[dims - 1] = stride;
      continue;
    }
    counts[dims] = d.count;
    stride_[dims++] = stride;
  }
  if (dims > 0 && stride_[dims - 1] == length_) {
    run_ = Divider(counts[--dims]);
    stride_[dims] = 0;
  }
  dims_ = dims;
  for (int i = 0; i < dims; ++i) count_[i] = Divider(counts[i]);
}

}  // namespace shunt::p2p
