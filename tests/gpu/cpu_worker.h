// Collectives that cpu_worker_main.cc knows, by their count.
#pragma once

#include <cstdint>

namespace shunt::gpu {

inline constexpr uint64_t kHang = 101;
inline constexpr uint64_t kNever = 102;

}  // namespace shunt::gpu
