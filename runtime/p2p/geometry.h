// Internal to runtime/p2p: a strided set in the form in which pieces are found fast.
#pragma once

#include <cstdint>

#include "runtime/p2p/descriptor.h"

namespace shunt::p2p {

// Division by a number that is known beforehand: a multiplication where dividend and divisor have
// 32 bits. With m = ceil(2^64 / d), floor(n * m / 2^64) is the quotient, since the error n * (m * d
// - 2^64) / d stays below 2^64 (Granlund and Montgomery, 1994).
class Divider {
 public:
  Divider() = default;
  explicit Divider(uint64_t divisor)
      : divisor_(divisor),
        magic_(divisor > 1 && divisor <= UINT32_MAX ? UINT64_MAX / divisor + 1 : 0) {}
  uint64_t operator()(uint64_t n) const {
    if (magic_ != 0 && n <= UINT32_MAX) {
      return static_cast<uint64_t>(static_cast<unsigned __int128>(n) * magic_ >> 64);
    }
    return divisor_ == 1 ? n : n / divisor_;
  }
  uint64_t divisor() const { return divisor_; }

 private:
  uint64_t divisor_ = 1;
  uint64_t magic_ = 0;
};

class Geometry {
 public:
  // `set` has been checked; `region` is an index into a table of the owner's.
  Geometry(const StridedSet& set, uint32_t region);

  uint32_t region() const { return region_; }
  uint64_t length() const { return length_; }
  // So many pieces with consecutive numbers lie one behind the other, beginning with each multiple.
  uint64_t run() const { return run_.divisor(); }
  // The pieces that follow this one, so many, each `stride` behind the one before; 0 where pieces
  // lie one behind the other anyhow.
  struct Row {
    uint64_t left = 0;
    uint64_t stride = 0;
  };
  Row RowAt(uint64_t number) const {
    if (dims_ == 0 || run() > 1) return {};
    const Divider& inner = count_[dims_ - 1];
    const uint64_t at = number - inner(number) * inner.divisor();
    return {inner.divisor() - 1 - at, stride_[dims_ - 1]};
  }
  // Where piece `number` begins, and how many pieces lie one behind the other from there, itself
  // included.
  uint64_t Locate(uint64_t number, uint64_t* contiguous) const {
    const uint64_t group = run_(number);
    const uint64_t in_run = number - group * run();
    *contiguous = run() - in_run;
    uint64_t offset = base_ + in_run * length_;
    uint64_t rest = group;
    for (int i = dims_; --i > 0;) {
      const uint64_t outer = count_[i](rest);
      offset += (rest - outer * count_[i].divisor()) * stride_[i];
      rest = outer;
    }
    return offset + rest * stride_[0];
  }

 private:
  uint32_t region_;
  int dims_ = 0;
  uint64_t base_;
  uint64_t length_;
  Divider run_{1};
  // The slowest first; its count is not needed.
  Divider count_[3];
  uint64_t stride_[3] = {0, 0, 0};
};

}  // namespace shunt::p2p
