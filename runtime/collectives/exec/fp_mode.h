// Internal to runtime/collectives/exec.
#pragma once

#include <cstdint>

#include "hwy/base.h"

#if HWY_ARCH_X86
#include <xmmintrin.h>
#endif

namespace shunt::internal {

// Puts the thread into the default floating-point mode (round to nearest even, subnormals kept, no
// traps) and restores the caller's on destruction. Training code commonly runs with subnormals
// flushed; which thread reduces a chunk must not show in the bits.
class DefaultFpMode {
 public:
  DefaultFpMode() : saved_(Read()) {
    if (Control(saved_) != kDefault) Write(kDefault);
  }
  ~DefaultFpMode() {
    if (Control(saved_) != kDefault) Write(saved_);
  }
  DefaultFpMode(const DefaultFpMode&) = delete;
  DefaultFpMode& operator=(const DefaultFpMode&) = delete;

 private:
#if HWY_ARCH_X86
  static constexpr uint64_t kDefault = 0x1f80;  // all exceptions masked
  static uint64_t Read() { return _mm_getcsr(); }
  static void Write(uint64_t mode) { _mm_setcsr(static_cast<unsigned>(mode)); }
  static uint64_t Control(uint64_t mode) { return mode & ~uint64_t{0x3f}; }  // without sticky flags
#elif HWY_ARCH_ARM_A64
  static constexpr uint64_t kDefault = 0;
  static uint64_t Read() {
    uint64_t mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void Write(uint64_t mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
  static uint64_t Control(uint64_t mode) { return mode; }
#else
  static constexpr uint64_t kDefault = 0;
  static uint64_t Read() { return 0; }
  static void Write(uint64_t) {}
  static uint64_t Control(uint64_t mode) { return mode; }
#endif

  const uint64_t saved_;
};

}  // namespace shunt::internal
