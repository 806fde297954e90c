// What the bodies of the kernels are written in. They compile for the host as well, where tests run
// them thread by thread against the CPU's arithmetic.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define SHUNT_DEVICE __device__ __forceinline__
#define SHUNT_UNROLL _Pragma("unroll")
#define SHUNT_PRAGMA(TEXT) _Pragma(#TEXT)
#define SHUNT_UNROLL_BY(N) SHUNT_PRAGMA(unroll N)
#else
#define SHUNT_DEVICE inline
#define SHUNT_UNROLL
#define SHUNT_UNROLL_BY(N)
#endif

namespace shunt::gpu {

// One thread's place in its grid.
struct Where {
  uint32_t block, blocks;
  uint32_t thread, threads;
};

struct alignas(16) Vec16 {
  uint32_t word[4];
};

// Data that nobody reads soon again: last in, first out of the caches.
SHUNT_DEVICE Vec16 LoadStreaming(uint64_t address) {
#ifdef __CUDACC__
  const uint4 v = __ldcs(reinterpret_cast<const uint4*>(address));
  return {{v.x, v.y, v.z, v.w}};
#else
  Vec16 v;
  std::memcpy(&v, reinterpret_cast<const void*>(address), sizeof(v));
  return v;
#endif
}

SHUNT_DEVICE void StoreStreaming(uint64_t address, const Vec16& v) {
#ifdef __CUDACC__
  __stcs(reinterpret_cast<uint4*>(address), make_uint4(v.word[0], v.word[1], v.word[2], v.word[3]));
#else
  std::memcpy(reinterpret_cast<void*>(address), &v, sizeof(v));
#endif
}

// Aligned to T's size.
template <class T>
SHUNT_DEVICE T LoadAligned(uint64_t address) {
#ifdef __CUDACC__
  return __ldcs(reinterpret_cast<const T*>(address));
#else
  return *reinterpret_cast<const T*>(address);
#endif
}

template <class T>
SHUNT_DEVICE void StoreAligned(uint64_t address, T value) {
#ifdef __CUDACC__
  __stcs(reinterpret_cast<T*>(address), value);
#else
  *reinterpret_cast<T*>(address) = value;
#endif
}

template <class T>
SHUNT_DEVICE T LoadBytes(uint64_t address) {
  T value = 0;
  SHUNT_UNROLL
  for (uint32_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<T>(static_cast<T>(LoadAligned<uint8_t>(address + i)) << (8 * i));
  }
  return value;
}

template <class T>
SHUNT_DEVICE void StoreBytes(uint64_t address, T value) {
  SHUNT_UNROLL
  for (uint32_t i = 0; i < sizeof(T); ++i) {
    StoreAligned<uint8_t>(address + i, static_cast<uint8_t>(value >> (8 * i)));
  }
}

// ---- Arithmetic, each operation rounded by itself: nothing fuses

template <class To, class From>
SHUNT_DEVICE To BitsAs(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

#ifdef __CUDACC__
SHUNT_DEVICE float Add(float a, float b) { return __fadd_rn(a, b); }
SHUNT_DEVICE float Mul(float a, float b) { return __fmul_rn(a, b); }
SHUNT_DEVICE float Div(float a, float b) { return __fdiv_rn(a, b); }
SHUNT_DEVICE double Add(double a, double b) { return __dadd_rn(a, b); }
SHUNT_DEVICE double Mul(double a, double b) { return __dmul_rn(a, b); }
SHUNT_DEVICE double Div(double a, double b) { return __ddiv_rn(a, b); }
#else
SHUNT_DEVICE float Add(float a, float b) { return a + b; }
SHUNT_DEVICE float Mul(float a, float b) { return a * b; }
SHUNT_DEVICE float Div(float a, float b) { return a / b; }
SHUNT_DEVICE double Add(double a, double b) { return a + b; }
SHUNT_DEVICE double Mul(double a, double b) { return a * b; }
SHUNT_DEVICE double Div(double a, double b) { return a / b; }
#endif
SHUNT_DEVICE uint32_t Add(uint32_t a, uint32_t b) { return a + b; }
SHUNT_DEVICE uint32_t Mul(uint32_t a, uint32_t b) { return a * b; }
SHUNT_DEVICE uint64_t Add(uint64_t a, uint64_t b) { return a + b; }
SHUNT_DEVICE uint64_t Mul(uint64_t a, uint64_t b) { return a * b; }

}  // namespace shunt::gpu
