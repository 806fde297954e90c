// The number formats: what lies in memory, and the lane that it is accumulated in. They give the
// bits of runtime/collectives/exec/reduce_*.cc.
//
// A codec has: Lane; Raw, an unsigned integer of at least kBytes; kBytes; kFloat; kSigned;
// Decode(raw) and Encode(lane).
#pragma once

#include <cstdint>
#include <type_traits>

#include "runtime/gpu/kernels/device.h"

namespace shunt::gpu {

// Integers. Lanes are unsigned, so that they wrap; 8 bits lie extended in 32.
template <class T>
struct IntCodec {
  static constexpr uint32_t kBytes = sizeof(T);
  static constexpr bool kFloat = false;
  static constexpr bool kSigned = std::is_signed_v<T>;
  using Raw = std::conditional_t<kBytes == 8, uint64_t, uint32_t>;
  using Lane = Raw;
  using SignedLane = std::make_signed_t<Lane>;
  static SHUNT_DEVICE Lane Decode(Raw raw) {
    return static_cast<Lane>(static_cast<SignedLane>(static_cast<T>(raw)));
  }
  static SHUNT_DEVICE Raw Encode(Lane lane) {
    if constexpr (kBytes == 1) return lane & 0xffu;
    return lane;
  }
};

struct Float32Codec {
  static constexpr uint32_t kBytes = 4;
  static constexpr bool kFloat = true, kSigned = true;
  using Raw = uint32_t;
  using Lane = float;
  static SHUNT_DEVICE Lane Decode(Raw raw) { return BitsAs<float>(raw); }
  static SHUNT_DEVICE Raw Encode(Lane v) { return v != v ? 0x7fc00000u : BitsAs<uint32_t>(v); }
};

struct Float64Codec {
  static constexpr uint32_t kBytes = 8;
  static constexpr bool kFloat = true, kSigned = true;
  using Raw = uint64_t;
  using Lane = double;
  static SHUNT_DEVICE Lane Decode(Raw raw) { return BitsAs<double>(raw); }
  static SHUNT_DEVICE Raw Encode(Lane v) {
    return v != v ? 0x7ff8000000000000u : BitsAs<uint64_t>(v);
  }
};

struct Bfloat16Codec {
  static constexpr uint32_t kBytes = 2;
  static constexpr bool kFloat = true, kSigned = true;
  using Raw = uint32_t;
  using Lane = float;
  static SHUNT_DEVICE Lane Decode(Raw raw) { return BitsAs<float>(raw << 16); }
  static SHUNT_DEVICE Raw Encode(Lane v) {
    const uint32_t bits = BitsAs<uint32_t>(v);
    return v != v ? 0x7fc0u : (bits + (0x7fffu + ((bits >> 16) & 1u))) >> 16;
  }
};

// A binary float with kExp exponent and kMan mantissa bits and a sign: MiniCodec of
// reduce_small_float.cc. kInf: the all-ones exponent means infinity and NaN; otherwise only all
// ones is NaN. Rounding gives at most kLimit.
template <uint32_t kSize, int kExp, int kMan, bool kInf, uint32_t kNanCode, uint32_t kLimit>
struct MiniCodec {
  static constexpr uint32_t kBytes = kSize;
  static constexpr bool kFloat = true, kSigned = true;
  using Raw = uint32_t;
  using Lane = float;
  static constexpr uint32_t kNan = kNanCode;

  static constexpr int kBias = (1 << (kExp - 1)) - 1;
  static constexpr uint32_t kSign = 1u << (kExp + kMan);
  static constexpr uint32_t kExponentMask = ((1u << kExp) - 1) << kMan;
  static constexpr int kSignShift = 31 - kExp - kMan;
  static constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kBias) << 23;
  // Bits of the float32 that is the smallest normal number of the format.
  static constexpr uint32_t kMinNormal = static_cast<uint32_t>(128 - kBias) << 23;
  // A float32 whose last bit weighs as much as the format's last subnormal bit.
  static constexpr uint32_t kMagic = static_cast<uint32_t>(127 + 23 + 1 - kBias - kMan) << 23;
  // The weight of that bit.
  static constexpr uint32_t kUnit = static_cast<uint32_t>(127 + 1 - kBias - kMan) << 23;

  static SHUNT_DEVICE Lane Decode(Raw raw) {
    const uint32_t sign = (raw & kSign) << kSignShift;
    const uint32_t magnitude = raw & (kSign - 1);
    uint32_t bits = (magnitude << (23 - kMan)) + kRebias;
    if (magnitude < (1u << kMan)) {
      bits = BitsAs<uint32_t>(Mul(static_cast<float>(magnitude), BitsAs<float>(kUnit)));
    }
    constexpr uint32_t kSpecial = kInf ? kExponentMask : kNan;
    if (magnitude >= kSpecial) bits |= kInf ? 0x7f800000u : 0x7fc00000u;
    return BitsAs<float>(bits | sign);
  }

  static SHUNT_DEVICE Raw Encode(Lane v) {
    const uint32_t bits = BitsAs<uint32_t>(v);
    const uint32_t sign = (bits >> kSignShift) & kSign;
    const uint32_t magnitude = bits & 0x7fffffffu;
    // Normal: round to nearest even on the bits; a carry runs into the exponent as it should.
    const uint32_t odd = (magnitude >> (23 - kMan)) & 1u;
    const uint32_t normal = (magnitude + odd + ((1u << (22 - kMan)) - 1u - kRebias)) >> (23 - kMan);
    // Subnormal: an addition in float32 rounds at the right bit.
    const uint32_t subnormal =
        BitsAs<uint32_t>(Add(BitsAs<float>(magnitude), BitsAs<float>(kMagic))) - kMagic;
    uint32_t code = magnitude < kMinNormal ? subnormal : normal;
    code = code < kLimit ? code : kLimit;
    return v != v ? kNan : code | sign;
  }
};

using Float16Codec = MiniCodec<2, 5, 10, true, 0x7e00, 0x7c00>;
using E4M3Codec = MiniCodec<1, 4, 3, false, 0x7f, 0x7e>;
using E5M2Codec = MiniCodec<1, 5, 2, true, 0x7e, 0x7b>;
using E5M2KeepInfCodec = MiniCodec<1, 5, 2, true, 0x7e, 0x7c>;  // min and max: no rounding

// The same by the GPU's conversions, which differ in the bits of a NaN alone. In software float8 is
// bound by arithmetic, not by memory.
#ifdef __CUDACC__
SHUNT_DEVICE float FloatOfHalf(uint32_t raw) {
  float v;
  asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(static_cast<uint16_t>(raw)));
  return v;
}

struct FastFloat16Codec : Float16Codec {
  static SHUNT_DEVICE Lane Decode(Raw raw) { return FloatOfHalf(raw); }
  static SHUNT_DEVICE Raw Encode(Lane v) {
    uint16_t raw;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(raw) : "f"(v));
    return v != v ? 0x7e00u : raw;
  }
};
#else
using FastFloat16Codec = Float16Codec;
#endif

#if defined(__CUDACC__) && __CUDA_ARCH__ >= 890
struct FastE4M3Codec : E4M3Codec {
  static SHUNT_DEVICE Lane Decode(Raw raw) {
    uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(raw)));
    return FloatOfHalf(halves);
  }
  static SHUNT_DEVICE Raw Encode(Lane v) {
    uint16_t raw;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(raw) : "f"(0.0f), "f"(v));
    return v != v ? kNan : raw;
  }
};

struct FastE5M2Codec : E5M2Codec {
  // The upper half of a float16.
  static SHUNT_DEVICE Lane Decode(Raw raw) { return FloatOfHalf(raw << 8); }
  static SHUNT_DEVICE Raw Encode(Lane v) {
    uint16_t raw;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(raw) : "f"(0.0f), "f"(v));
    return v != v ? kNan : raw;
  }
};
#else
using FastE4M3Codec = E4M3Codec;
using FastE5M2Codec = E5M2Codec;
#endif

// ---- Vectors of 16 bytes

template <class Codec>
inline constexpr uint32_t kLanes = 16 / Codec::kBytes;

template <class Codec>
SHUNT_DEVICE typename Codec::Raw RawAt(const Vec16& v, uint32_t lane) {
  if constexpr (Codec::kBytes == 8) {
    return v.word[2 * lane] | static_cast<uint64_t>(v.word[2 * lane + 1]) << 32;
  } else if constexpr (Codec::kBytes == 4) {
    return v.word[lane];
  } else {
    constexpr uint32_t kPerWord = 4 / Codec::kBytes;
    constexpr uint32_t kBits = 8 * Codec::kBytes;
    return (v.word[lane / kPerWord] >> (kBits * (lane % kPerWord))) & ((1u << kBits) - 1u);
  }
}

template <class Codec>
SHUNT_DEVICE Vec16 Encoded(const typename Codec::Lane (&lanes)[kLanes<Codec>]) {
  Vec16 v{};
  SHUNT_UNROLL
  for (uint32_t lane = 0; lane < kLanes<Codec>; ++lane) {
    const typename Codec::Raw raw = Codec::Encode(lanes[lane]);
    if constexpr (Codec::kBytes == 8) {
      v.word[2 * lane] = static_cast<uint32_t>(raw);
      v.word[2 * lane + 1] = static_cast<uint32_t>(raw >> 32);
    } else {
      constexpr uint32_t kPerWord = 4 / Codec::kBytes;
      constexpr uint32_t kBits = 8 * Codec::kBytes;
      v.word[lane / kPerWord] |= raw << (kBits * (lane % kPerWord) % 32);
    }
  }
  return v;
}

}  // namespace shunt::gpu
