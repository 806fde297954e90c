// Values of a symbolic run: which participants' contributions a block holds, and the expression
// that has combined them. Private to this directory.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace shunt::net {

// A growing table of values, named by number; a value never changes.
class Contributions {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  // Forgets all but the single contributions of `participants`.
  void Reset(int32_t participants) {
    participants_ = participants;
    words_ = (static_cast<size_t>(participants) + 63) / 64;
    bits_.assign(words_ * participants, 0);
    expressions_.resize(participants);
    for (int32_t p = 0; p < participants; ++p) {
      bits_[words_ * p + p / 64] = uint64_t{1} << (p % 64);
      expressions_[p] = Mix(static_cast<uint64_t>(p) + 1);
    }
  }

  uint32_t Of(int32_t participant) const { return static_cast<uint32_t>(participant); }

  // left op right; kNone if a contribution is in both.
  uint32_t Combine(uint32_t left, uint32_t right) {
    const size_t at = bits_.size();
    bits_.resize(at + words_);
    for (size_t w = 0; w < words_; ++w) {
      const uint64_t a = bits_[words_ * left + w], b = bits_[words_ * right + w];
      if ((a & b) != 0) return kNone;
      bits_[at + w] = a | b;
    }
    // Left and right are told apart, and so is the shape of the tree.
    expressions_.push_back(Mix(Mix(expressions_[left]) * 3 + expressions_[right]));
    return static_cast<uint32_t>(expressions_.size() - 1);
  }

  uint32_t Size(uint32_t value) const {
    int size = 0;
    for (size_t w = 0; w < words_; ++w) size += std::popcount(bits_[words_ * value + w]);
    return static_cast<uint32_t>(size);
  }
  bool IsWhole(uint32_t value) const { return Size(value) == static_cast<uint32_t>(participants_); }
  bool SameExpression(uint32_t a, uint32_t b) const { return expressions_[a] == expressions_[b]; }

 private:
  // The finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
  // generators", 2014).
  static uint64_t Mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }

  int32_t participants_ = 0;
  size_t words_ = 0;
  std::vector<uint64_t> bits_;         // words_ for each value
  std::vector<uint64_t> expressions_;  // their hashes
};

}  // namespace shunt::net
