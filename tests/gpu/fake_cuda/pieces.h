// The table of all memory that the fake knows.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <map>

namespace shunt::fake_cuda {

struct Piece {
  enum class Kind : uint8_t {
    kDevice,      // cuMemAlloc
    kManaged,     // cuMemAllocManaged
    kPool,        // cuMemAllocAsync
    kHost,        // cuMemHostAlloc
    kRegistered,  // cuMemHostRegister
    kImported,    // cuIpcOpenMemHandle
    kMapping,     // cuMemMap
  };
  Kind kind = Kind::kDevice;
  bool accessible = true;  // kMapping: cuMemSetAccess was called
  uint64_t base = 0;
  uint64_t bytes = 0;
  int device = 0;
  uint64_t id = 0;  // kMapping: the allocation's
  int fd = -1;      // owned, of what was allocated here
  // kMapping
  uint64_t allocation = 0;
  uint64_t range_base = 0, range_bytes = 0, range_id = 0;  // what was reserved
  // kImported
  uint64_t exporter_id = 0;
  int exporter = 0;  // pid
  int opened = 0;

  bool OnDevice() const { return kind != Kind::kHost && kind != Kind::kRegistered; }
};

// With Lock() held.
std::map<uint64_t, Piece>& Pieces();  // by base
Piece* PieceAt(uint64_t address);     // that holds it, or null

}  // namespace shunt::fake_cuda
