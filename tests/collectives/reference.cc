#include "tests/collectives/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

namespace shunt::testing {
namespace {

struct Format {
  int exponent_bits, mantissa_bits;
  bool has_infinity;
  uint32_t quiet_nan;
};

Format FormatOf(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return {5, 10, true, 0x7e00};
    case DataType::kBfloat16:
      return {8, 7, true, 0x7fc0};
    case DataType::kFloat8E4M3:
      return {4, 3, false, 0x7f};
    default:
      return {5, 2, true, 0x7e};
  }
}

// All magnitudes in order, code by code; the entry after the largest finite one is what it would be
// if the exponent went on, so that rounding to infinity needs no special case.
std::vector<double> MakeMagnitudes(DataType type) {
  const Format f = FormatOf(type);
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const uint32_t special =
      f.has_infinity ? ((1u << f.exponent_bits) - 1) << f.mantissa_bits : f.quiet_nan;
  std::vector<double> table;
  for (uint32_t code = 0; code <= special; ++code) {
    const uint32_t exponent = code >> f.mantissa_bits;
    const double mantissa = code & ((1u << f.mantissa_bits) - 1);
    const double one = 1u << f.mantissa_bits;
    table.push_back(exponent == 0
                        ? std::ldexp(mantissa / one, 1 - bias)
                        : std::ldexp(1 + mantissa / one, static_cast<int>(exponent) - bias));
  }
  return table;
}

const std::vector<double>& Magnitudes(DataType type) {
  static const std::map<DataType, std::vector<double>> tables = [] {
    std::map<DataType, std::vector<double>> made;
    for (const DataType t :
         {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat8E4M3, DataType::kFloat8E5M2}) {
      made.emplace(t, MakeMagnitudes(t));
    }
    return made;
  }();
  return tables.at(type);
}

template <class T>
T FromBits(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

template <class T>
uint64_t ToBits(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

// x(k), factor(k): rank k's, of type T.
template <class T, class X, class Factor>
T FoldFloat(Redop redop, int divisor, size_t ranks, X x, Factor factor) {
  if (redop == Redop::kPremulSum) {
    volatile T acc = x(0) * factor(0);  // volatile: two roundings, whatever the compiler may do
    for (size_t k = 1; k < ranks; ++k) {
      const volatile T product = x(k) * factor(k);
      acc = acc + product;
    }
    return acc;
  }
  T acc = x(0);
  for (size_t k = 1; k < ranks; ++k) {
    const T next = x(k);
    switch (redop) {
      case Redop::kProd:
        acc = acc * next;
        break;
      case Redop::kMin:
        if (std::isnan(acc) || std::isnan(next)) {
          acc = std::numeric_limits<T>::quiet_NaN();
        } else if (next < acc) {
          acc = next;
        }
        break;
      case Redop::kMax:
        if (std::isnan(acc) || std::isnan(next)) {
          acc = std::numeric_limits<T>::quiet_NaN();
        } else if (next > acc) {
          acc = next;
        }
        break;
      default:
        acc = acc + next;
    }
  }
  return redop == Redop::kAvg ? acc / static_cast<T>(divisor) : acc;
}

template <class T>
uint64_t ReduceWholeFloat(Redop redop, int divisor, const std::vector<uint64_t>& contributions,
                          const std::vector<uint64_t>& factors) {
  const T result = FoldFloat<T>(
      redop, divisor, contributions.size(), [&](size_t k) { return FromBits<T>(contributions[k]); },
      [&](size_t k) { return FromBits<T>(factors[k]); });
  if (!std::isnan(result)) return ToBits(result);
  return sizeof(T) == 4 ? 0x7fc00000u : 0x7ff8000000000000u;
}

// T: the type itself. All arithmetic in 64 bits, cut to the type's width after each step.
template <class T>
uint64_t ReduceInteger(Redop redop, int divisor, const std::vector<uint64_t>& contributions,
                       const std::vector<uint64_t>& factors) {
  const auto value = [](uint64_t bits) { return static_cast<T>(bits); };
  T acc = 0;
  for (size_t k = 0; k < contributions.size(); ++k) {
    T x = value(contributions[k]);
    if (redop == Redop::kPremulSum) {
      x = value(static_cast<uint64_t>(x) * static_cast<uint64_t>(value(factors[k])));
    }
    if (k == 0) {
      acc = x;
    } else if (redop == Redop::kProd) {
      acc = value(static_cast<uint64_t>(acc) * static_cast<uint64_t>(x));
    } else if (redop == Redop::kMin) {
      acc = std::min(acc, x);
    } else if (redop == Redop::kMax) {
      acc = std::max(acc, x);
    } else {
      acc = value(static_cast<uint64_t>(acc) + static_cast<uint64_t>(x));
    }
  }
  if (redop == Redop::kAvg) {
    if (std::numeric_limits<T>::is_signed) {
      acc = static_cast<T>(static_cast<int64_t>(acc) / divisor);
    } else {
      acc = static_cast<T>(static_cast<uint64_t>(acc) / static_cast<uint64_t>(divisor));
    }
  }
  return static_cast<uint64_t>(acc) & (~uint64_t{0} >> (64 - 8 * sizeof(T)));
}

}  // namespace

double DecodeSmallFloat(DataType type, uint32_t bits) {
  const Format f = FormatOf(type);
  const uint32_t sign = 1u << (f.exponent_bits + f.mantissa_bits);
  const uint32_t code = bits & (sign - 1);
  const std::vector<double>& table = Magnitudes(type);
  double value;
  if (code + 1 < table.size()) {
    value = table[code];
  } else if (f.has_infinity && code + 1 == table.size()) {
    value = std::numeric_limits<double>::infinity();
  } else {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return bits & sign ? -value : value;
}

uint32_t EncodeSmallFloat(DataType type, float value, bool saturate) {
  const Format f = FormatOf(type);
  if (std::isnan(value)) return f.quiet_nan;
  const uint32_t sign = std::signbit(value) ? 1u << (f.exponent_bits + f.mantissa_bits) : 0;
  const std::vector<double>& table = Magnitudes(type);
  const auto beyond = static_cast<uint32_t>(table.size() - 1);  // infinity, or one past the largest
  const double magnitude = std::fabs(static_cast<double>(value));
  uint32_t code = beyond;
  if (magnitude < table.back()) {
    const auto above = std::upper_bound(table.begin(), table.end(), magnitude);
    const auto high = static_cast<uint32_t>(above - table.begin());
    const double up = table[high] - magnitude;
    const double down = magnitude - table[high - 1];
    code = up < down || (up == down && high % 2 == 0) ? high : high - 1;
  }
  if (code == beyond && (saturate || !f.has_infinity)) --code;
  return sign | code;
}

uint64_t ReferenceReduce(DataType type, Redop redop, int divisor,
                         const std::vector<uint64_t>& contributions,
                         const std::vector<uint64_t>& factors) {
  const bool copies = redop == Redop::kAvg ? divisor == 1 : redop != Redop::kPremulSum;
  if (contributions.size() == 1 && copies) return contributions[0];
  switch (type) {
    case DataType::kInt8:
      return ReduceInteger<int8_t>(redop, divisor, contributions, factors);
    case DataType::kUint8:
      return ReduceInteger<uint8_t>(redop, divisor, contributions, factors);
    case DataType::kInt32:
      return ReduceInteger<int32_t>(redop, divisor, contributions, factors);
    case DataType::kUint32:
      return ReduceInteger<uint32_t>(redop, divisor, contributions, factors);
    case DataType::kInt64:
      return ReduceInteger<int64_t>(redop, divisor, contributions, factors);
    case DataType::kUint64:
      return ReduceInteger<uint64_t>(redop, divisor, contributions, factors);
    case DataType::kFloat32:
      return ReduceWholeFloat<float>(redop, divisor, contributions, factors);
    case DataType::kFloat64:
      return ReduceWholeFloat<double>(redop, divisor, contributions, factors);
    default:
      break;
  }
  const auto decode = [type](uint64_t bits) {
    return static_cast<float>(DecodeSmallFloat(type, static_cast<uint32_t>(bits)));
  };
  const bool keeps_infinity = redop == Redop::kMin || redop == Redop::kMax || SizeOf(type) == 2;
  const float result = FoldFloat<float>(
      redop, divisor, contributions.size(), [&](size_t k) { return decode(contributions[k]); },
      [&](size_t k) { return decode(factors[k]); });
  return EncodeSmallFloat(type, result, !keeps_infinity);
}

}  // namespace shunt::testing
