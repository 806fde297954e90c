#include "runtime/p2p/disjoint.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

namespace shunt::p2p {
namespace {

// A set with its dimensions by falling stride; the sums below may pass 2^63 on either side.
using Wide = __int128;

struct Nest {
  Wide base;
  uint64_t length;
  int dims = 0;
  uint64_t count[3];
  uint64_t stride[3];

  explicit Nest(const StridedSet& set) : base(set.base), length(set.length) {
    for (const Dimension& d : set.dims) {
      if (d.count == 1) continue;
      const auto step = static_cast<uint64_t>(d.stride);
      int at = dims++;
      for (; at > 0 && stride[at - 1] < step; --at) {
        stride[at] = stride[at - 1];
        count[at] = count[at - 1];
      }
      stride[at] = step;
      count[at] = d.count;
    }
  }
  Wide span() const {
    Wide bytes = length;
    for (int i = 0; i < dims; ++i) bytes += static_cast<Wide>(count[i] - 1) * stride[i];
    return bytes;
  }
  // Without the dimension of the longest stride: its first step, moved by `shift`.
  Nest Inner(Wide shift) const {
    Nest inner = *this;
    inner.base += shift;
    --inner.dims;
    for (int i = 0; i < inner.dims; ++i) {
      inner.count[i] = count[i + 1];
      inner.stride[i] = stride[i + 1];
    }
    return inner;
  }
};

// So many steps of one set are looked at one by one where the other lies beside few of them.
constexpr Wide kStepsMax = 4;

Wide FloorDiv(Wide a, Wide b) { return a / b - (a % b < 0 ? 1 : 0); }

bool Apart(const Nest& a, const Nest& b, uint32_t* steps) {
  if (*steps == 0) return false;
  --*steps;
  if (a.base + a.span() <= b.base || b.base + b.span() <= a.base) return true;
  if (a.dims == 0 && b.dims == 0) return false;
  if (a.dims > 0 && b.dims > 0 && a.stride[0] == b.stride[0]) {
    // On a circle as long as the stride all steps of a set fall on one another.
    const Wide period = a.stride[0];
    const Nest inner_a = a.Inner(0);
    const Wide turns = FloorDiv(a.base - b.base, period);
    for (Wide turn = turns; turn <= turns + 1; ++turn) {  // the others lie a period away or more
      if (!Apart(inner_a, b.Inner(turn * period), steps)) return false;
    }
    return true;
  }
  const bool split_a = a.dims > 0 && (b.dims == 0 || a.stride[0] > b.stride[0]);
  const Nest& outer = split_a ? a : b;
  const Nest& other = split_a ? b : a;
  const Wide period = outer.stride[0];
  const Wide inner_span = outer.Inner(0).span();
  const Wide first = std::max<Wide>(0, FloorDiv(other.base - outer.base - inner_span, period));
  const Wide last =
      std::min<Wide>(outer.count[0] - 1, FloorDiv(other.base + other.span() - outer.base, period));
  if (last - first >= kStepsMax) return false;
  for (Wide i = first; i <= last; ++i) {
    if (!Apart(outer.Inner(i * period), other, steps)) return false;
  }
  return true;
}

}  // namespace

bool SurelyDisjoint(const StridedSet& a, const StridedSet& b, uint32_t* steps) {
  return Apart(Nest(a), Nest(b), steps);
}

bool Intersect(const Progression& a, const Progression& b) {
  if (a.count == 0 || b.count == 0) return false;
  const uint64_t step_a = std::max<uint64_t>(a.step, 1), step_b = std::max<uint64_t>(b.step, 1);
  const Wide last_a = a.first + static_cast<Wide>(a.count - 1) * step_a;
  const Wide last_b = b.first + static_cast<Wide>(b.count - 1) * step_b;
  const Wide low = std::max(a.first, b.first);
  const Wide high = std::min(last_a, last_b);
  if (low > high) return false;
  if (a.count == 1) return (static_cast<Wide>(a.first) - b.first) % step_b == 0;
  if (b.count == 1) return (static_cast<Wide>(b.first) - a.first) % step_a == 0;
  const uint64_t common = std::gcd(step_a, step_b);
  const Wide difference = static_cast<Wide>(b.first) - a.first;
  if (difference % common != 0) return false;
  // x = a.first + step_a * k, with k = difference / common * (step_a / common)^-1 mod m. Pieces'
  // numbers are below kPiecesMax, and so are steps between two of them, m, inverse and k: products
  // of two don't fit into 64 bits, and are far from overflowing 128. (They fit for any numbers
  // below 2^63.)
  const Wide m = step_b / common;
  Wide inverse = 0;
  {
    Wide r0 = m, r1 = step_a / common % m, t0 = 0, t1 = 1;
    while (r1 != 0) {
      const Wide q = r0 / r1;
      std::tie(r0, r1) = std::pair(r1, r0 - q * r1);
      std::tie(t0, t1) = std::pair(t1, t0 - q * t1);
    }
    inverse = t0;
  }
  Wide k = difference / common % m * inverse % m;
  if (k < 0) k += m;
  const Wide period = static_cast<Wide>(step_a) * m;
  const Wide x = a.first + step_a * k;  // the least common number not below a.first, in a's steps
  const Wide at = x >= low ? x : x + (low - x + period - 1) / period * period;
  return at <= high;
}

}  // namespace shunt::p2p
