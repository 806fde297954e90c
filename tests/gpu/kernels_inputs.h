// Random contributions of every data type, with what breaks arithmetic among them: NaN of several
// payloads, infinities, zeros of both signs, subnormals, the largest and smallest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>

#include "runtime/core/types.h"

namespace shunt::gpu {

class Inputs {
 public:
  explicit Inputs(uint64_t seed) : random_(seed) {}

  uint64_t Number() { return random_(); }
  uint64_t Below(uint64_t limit) { return random_() % limit; }

  // `specials`: one element in eight is an awkward one; otherwise none is, and sums are finite.
  void Fill(DataType type, bool specials, std::byte* memory, uint64_t count) {
    const uint64_t size = SizeOf(type);
    for (uint64_t i = 0; i < count; ++i) {
      uint64_t bits = random_();
      if (!IsInteger(type)) {
        const Format format = FormatOf(type);
        const uint64_t sign = (bits & 1) << (8 * size - 1);
        if (specials && (bits >> 1) % 8 == 0) {
          bits = Special(format, (bits >> 8) % 12, bits >> 16) | sign;
        } else {
          // Of exponents near 1, so that sums round.
          const uint64_t exponent = format.bias - 2 + (bits >> 8) % 4;
          bits = (exponent << format.mantissa) | ((bits >> 16) & format.MantissaMask()) | sign;
        }
      }
      std::memcpy(memory + i * size, &bits, size);
    }
  }

 private:
  struct Format {
    int exponent, mantissa;
    uint64_t bias;
    uint64_t MantissaMask() const { return (uint64_t{1} << mantissa) - 1; }
    uint64_t AllOnes() const { return ((uint64_t{1} << exponent) - 1) << mantissa; }
  };

  static Format FormatOf(DataType type) {
    switch (type) {
      case DataType::kFloat16:
        return {5, 10, 15};
      case DataType::kBfloat16:
        return {8, 7, 127};
      case DataType::kFloat64:
        return {11, 52, 1023};
      case DataType::kFloat8E4M3:
        return {4, 3, 7};
      case DataType::kFloat8E5M2:
        return {5, 2, 15};
      default:
        return {8, 23, 127};
    }
  }

  static uint64_t Special(const Format& format, uint64_t which, uint64_t noise) {
    const uint64_t mantissa = noise & format.MantissaMask();
    switch (which) {
      case 0:
        return 0;
      case 1:
        return 1;
      case 2:
      case 3:
        return mantissa;  // subnormal
      case 4:
        return format.AllOnes();  // infinity; e4m3: 256
      case 5:
        return format.AllOnes() | format.MantissaMask();
      case 6:
        return format.AllOnes() | mantissa;
      case 7:
        return format.AllOnes() - 1;  // the largest finite; e4m3: 240
      case 8:
        return uint64_t{1} << format.mantissa;  // the smallest normal
      case 9:
        return (uint64_t{1} << format.mantissa) | mantissa;
      case 10:
        return (format.AllOnes() - (uint64_t{1} << format.mantissa)) | mantissa;
      default:
        return noise & (format.AllOnes() | format.MantissaMask());
    }
  }

  std::mt19937_64 random_;
};

}  // namespace shunt::gpu
