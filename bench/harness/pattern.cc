#include "bench/harness/pattern.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace shunt::bench {
namespace {

uint64_t Mix(uint64_t seed, uint64_t rank, uint64_t index) {
  uint64_t x = index * 0x9e3779b97f4a7c15u + rank * 0xd1342543de82ef95u + seed;
  x ^= x >> 32;
  x *= 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 29);
}

// A whole number below `bound` chosen by the high bits of `hash`.
uint32_t Below(uint64_t hash, uint32_t bound) {
  return static_cast<uint32_t>(((hash >> 32) * bound) >> 32);
}

// The largest m such that the type holds every whole number up to m; capped where more is useless.
uint32_t ExactMaximum(DataType dtype) {
  switch (dtype) {
    case DataType::kInt8:
      return 127;
    case DataType::kUint8:
      return 255;
    case DataType::kFloat16:
      return 2048;
    case DataType::kBfloat16:
      return 256;
    case DataType::kFloat8E4M3:
      return 16;
    case DataType::kFloat8E5M2:
      return 8;
    default:
      return 1u << 20;
  }
}

// A binary floating-point code with `mantissa` bits: sign, exponent, mantissa. Exact for the
// numbers that the callers use, all of them at most ExactMaximum.
uint64_t EncodeSmallFloat(uint32_t value, int mantissa, int bias) {
  if (value == 0) return 0;
  const int exponent = 31 - __builtin_clz(value);
  const uint64_t wide = value;
  const uint64_t fraction =
      exponent <= mantissa ? wide << (mantissa - exponent) : wide >> (exponent - mantissa);
  return (static_cast<uint64_t>(exponent + bias) << mantissa) +
         (fraction - (uint64_t{1} << mantissa));
}

uint64_t Encode(DataType dtype, uint32_t value) {
  switch (dtype) {
    case DataType::kFloat16:
      return EncodeSmallFloat(value, 10, 15);
    case DataType::kBfloat16:
      return EncodeSmallFloat(value, 7, 127);
    case DataType::kFloat8E4M3:
      return EncodeSmallFloat(value, 3, 7);
    case DataType::kFloat8E5M2:
      return EncodeSmallFloat(value, 2, 15);
    case DataType::kFloat32:
      return EncodeSmallFloat(value, 23, 127);
    case DataType::kFloat64:
      return EncodeSmallFloat(value, 52, 1023);
    default:
      return value;
  }
}

uint32_t PremulFactor(int rank) { return rank % 2 == 0 ? 2 : 1; }

// The numbers that ranks contribute to a reduction and what comes out.
class Contributions {
 public:
  explicit Contributions(const Problem& p) : problem_(p), exact_(ExactMaximum(p.dtype)) {
    const uint32_t ranks = static_cast<uint32_t>(p.ranks);
    // With more ranks than the type can count, only the first `givers_` contribute to a sum.
    const uint32_t weight = p.redop == Redop::kPremulSum ? 2 : 1;
    givers_ = std::min(ranks, std::max<uint32_t>(1, exact_ / weight));
    bound_ = exact_ / (weight * givers_) + 1;
  }

  uint32_t Of(int rank, uint64_t index) const {
    const uint32_t n = static_cast<uint32_t>(problem_.ranks);
    const uint32_t r = static_cast<uint32_t>(rank);
    switch (problem_.redop) {
      case Redop::kSum:
      case Redop::kPremulSum:
        return r < givers_ ? Below(Mix(problem_.seed, r, index), bound_) : 0;
      case Redop::kProd:
        return (r + index) % n < 2 ? 2 : 1;
      case Redop::kMin:
      case Redop::kMax:
        return Below(Mix(problem_.seed, r, index), exact_ + 1);
      case Redop::kAvg: {
        // Pairs of ranks deviate by one up and down from a common number: the sum is n times it.
        const uint32_t common = Average(index);
        if (r % 2 == 0) return r + 1 < n ? common + 1 : common;
        return common - 1;
      }
    }
    return 0;
  }

  uint32_t Result(uint64_t index) const {
    const int n = problem_.ranks;
    if (problem_.redop == Redop::kAvg) return Average(index);
    uint32_t result = Weighted(0, index);
    for (int r = 1; r < n; ++r) {
      const uint32_t value = Weighted(r, index);
      switch (problem_.redop) {
        case Redop::kProd:
          result *= value;
          break;
        case Redop::kMin:
          result = std::min(result, value);
          break;
        case Redop::kMax:
          result = std::max(result, value);
          break;
        default:
          result += value;
      }
    }
    return result;
  }

  uint32_t largest() const { return exact_ + 1; }

 private:
  uint32_t Weighted(int rank, uint64_t index) const {
    const uint32_t value = Of(rank, index);
    return problem_.redop == Redop::kPremulSum ? value * PremulFactor(rank) : value;
  }

  uint32_t Average(uint64_t index) const {
    // Low enough that an 8-bit sum of a few ranks stays in range; at least 1, so none is negative.
    const uint32_t room = exact_ / static_cast<uint32_t>(problem_.ranks);
    return 1 + Below(Mix(problem_.seed, 0, index), std::clamp<uint32_t>(room, 2, 1000) - 1);
  }

  Problem problem_;
  uint32_t exact_;
  uint32_t givers_;
  uint32_t bound_;
};

template <typename T>
class Typed {
 public:
  explicit Typed(const Problem& problem) : problem_(problem), contributions_(problem) {
    if (!Reduces(problem.op)) return;
    // Encoding through a table: filling and checking 64 MiB must not dominate a benchmark's time.
    codes_.resize(std::min<uint32_t>(contributions_.largest() + 1, 1u << 12));
    for (uint32_t v = 0; v < codes_.size(); ++v) {
      codes_[v] = static_cast<T>(Encode(problem.dtype, v));
    }
  }

  T Input(int rank, uint64_t index) const {
    if (!Reduces(problem_.op)) return static_cast<T>(Mix(problem_.seed, rank, index) >> 7);
    return Code(contributions_.Of(rank, index));
  }
  T Reduced(uint64_t index) const { return Code(contributions_.Result(index)); }

  void Fill(int rank, char* input) const {
    const uint64_t n = InputElements(problem_, rank);
    for (uint64_t i = 0; i < n; ++i) {
      const T value = Input(rank, i);
      std::memcpy(input + i * sizeof(T), &value, sizeof(T));
    }
  }

  uint64_t Wrong(const Segment& segment, const char* output) const {
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < segment.elements; ++i) {
      const uint64_t source = segment.source_offset + i;
      const T expected = segment.source < 0 ? Reduced(source) : Input(segment.source, source);
      wrong += std::memcmp(output + (segment.offset + i) * sizeof(T), &expected, sizeof(T)) != 0;
    }
    return wrong;
  }

 private:
  T Code(uint32_t value) const {
    return value < codes_.size() ? codes_[value] : static_cast<T>(Encode(problem_.dtype, value));
  }

  Problem problem_;
  Contributions contributions_;
  std::vector<T> codes_;
};

template <typename F>
auto WithElementType(const Problem& problem, F&& f) {
  switch (SizeOf(problem.dtype)) {
    case 1:
      return f(Typed<uint8_t>(problem));
    case 2:
      return f(Typed<uint16_t>(problem));
    case 4:
      return f(Typed<uint32_t>(problem));
    default:
      return f(Typed<uint64_t>(problem));
  }
}

}  // namespace

void FillInput(const Problem& problem, int rank, void* input) {
  WithElementType(problem, [&](const auto& typed) { typed.Fill(rank, static_cast<char*>(input)); });
}

void FillScalar(const Problem& problem, int rank, void* scalar) {
  const uint64_t code = Encode(problem.dtype, PremulFactor(rank));
  std::memcpy(scalar, &code, sizeof(code));  // little-endian: the low bytes are the element
}

uint64_t CountWrong(const Problem& problem, int rank, const void* output) {
  return WithElementType(problem, [&](const auto& typed) {
    uint64_t wrong = 0;
    for (const Segment& segment : ExpectedOutput(problem, rank)) {
      wrong += typed.Wrong(segment, static_cast<const char*>(output));
    }
    return wrong;
  });
}

uint64_t CountChangedInput(const Problem& problem, int rank, const void* input) {
  const Segment all{0, InputElements(problem, rank), rank, 0};
  return WithElementType(problem, [&](const auto& typed) {
    return typed.Wrong(all, static_cast<const char*>(input));
  });
}

}  // namespace shunt::bench
