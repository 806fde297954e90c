#include "runtime/p2p/descriptor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace shunt::p2p {
namespace {

constexpr uint64_t kBytesMax = uint64_t{1} << 63;

absl::Status Refuse(const StridedSet& set, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("strided set (", Describe(set), "): ", why));
}

}  // namespace

absl::Status Check(const StridedSet& set, uint64_t region_bytes) {
  if (set.length == 0) return Refuse(set, "a piece has 0 bytes, expected at least 1");
  uint64_t pieces = 1;
  std::array<std::pair<uint64_t, uint64_t>, 3> by_stride = {};  // (stride, count)
  for (size_t i = 0; i < 3; ++i) {
    const Dimension& d = set.dims[i];
    if (d.count == 0) return Refuse(set, absl::StrCat("count ", i, " is 0, expected at least 1"));
    if (__builtin_mul_overflow(pieces, d.count, &pieces) || pieces > kPiecesMax) {
      return Refuse(set, absl::StrCat("more than ", kPiecesMax, " pieces"));
    }
    if (d.count == 1) continue;
    if (d.stride < 0) {
      return Refuse(set, absl::StrCat("stride ", i, " is ", d.stride,
                                      ", expected none below 0: name the pieces backwards by an "
                                      "index list instead"));
    }
    by_stride[i] = {static_cast<uint64_t>(d.stride), d.count};
  }
  std::sort(by_stride.begin(), by_stride.end());
  uint64_t span = set.length;
  for (const auto& [stride, count] : by_stride) {
    if (count == 0) continue;
    if (stride < span) {
      return Refuse(set, absl::StrCat("pieces overlap: stride ", stride, " is less than the ", span,
                                      " bytes that it steps over"));
    }
    uint64_t steps;
    if (__builtin_mul_overflow(count - 1, stride, &steps) ||
        __builtin_add_overflow(span, steps, &span) || span > kBytesMax) {
      return Refuse(set, "it spans more than 2^63 bytes");
    }
  }
  if (span > region_bytes || set.base > region_bytes - span) {
    return absl::OutOfRangeError(absl::StrCat("strided set (", Describe(set), ") spans ", span,
                                              " bytes from ", set.base, ", but region ", set.region,
                                              " has ", region_bytes));
  }
  return absl::OkStatus();
}

absl::Status Check(const Descriptor& descriptor, uint64_t region_bytes) {
  if (descriptor.length == 0) {
    return absl::InvalidArgumentError(absl::StrCat("descriptor (region ", descriptor.region,
                                                   ", offset ", descriptor.offset,
                                                   ") has 0 bytes, expected at least 1"));
  }
  if (descriptor.length > region_bytes || descriptor.offset > region_bytes - descriptor.length) {
    return absl::OutOfRangeError(absl::StrCat(
        "descriptor (region ", descriptor.region, ", offset ", descriptor.offset, ", ",
        descriptor.length, " bytes) leaves the region, which has ", region_bytes, " bytes"));
  }
  return absl::OkStatus();
}

uint64_t PieceCount(const StridedSet& set) {
  return set.dims[0].count * set.dims[1].count * set.dims[2].count;
}

uint64_t Span(const StridedSet& set) {
  uint64_t span = set.length;
  for (const Dimension& d : set.dims) {
    if (d.count > 1) span += (d.count - 1) * static_cast<uint64_t>(d.stride);
  }
  return span;
}

uint64_t PieceOffset(const StridedSet& set, uint64_t number) {
  uint64_t offset = set.base;
  for (size_t i = 3; i-- > 0;) {
    const Dimension& d = set.dims[i];
    if (d.count > 1) offset += number % d.count * static_cast<uint64_t>(d.stride);
    number /= d.count;
  }
  return offset;
}

std::string Describe(const StridedSet& set) {
  const auto& d = set.dims;
  return absl::StrCat("region ", set.region, ": base ", set.base, ", ", d[0].count, " x ",
                      d[1].count, " x ", d[2].count, " pieces of ", set.length, " bytes, strides ",
                      d[0].stride, ", ", d[1].stride, ", ", d[2].stride);
}

}  // namespace shunt::p2p
