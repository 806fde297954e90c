// Memory of the fake: who may reach what.
#pragma once

#include <cstdint>

namespace shunt::fake_cuda {

// Whether all of the range lies in one piece of memory that the device reaches. Takes Lock().
bool Reachable(uint64_t address, uint64_t bytes);

}  // namespace shunt::fake_cuda
