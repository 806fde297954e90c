// The lease socket's messages about GPU memory and captured calls, as plain structs: part of
// lease_messages.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "client/src/wire.h"

namespace shunt::client {

// Of memory that crosses as a descriptor, which then comes with the packet, `ipc_handle` is empty.
struct RegisterDevice {
  std::string device_uuid;
  uint64_t size_bytes = 0;
  std::string ipc_handle;
};

struct DeviceRegistered {
  uint64_t region_id = 0;
};

// A place in a region; region 0: none.
struct RegionPlace {
  uint64_t region_id = 0;
  uint64_t offset_bytes = 0;
};

struct CaptureCall {
  uint64_t communicator_id = 0;
  uint64_t sequence = 0;
  int32_t kind = 0;       // shunt.v1.OperationKind
  int32_t data_type = 0;  // shunt.v1.DataType
  int32_t reduce_op = 0;  // shunt.v1.ReduceOp
  uint64_t count = 0;
  int32_t root = 0;
  RegionPlace input, output;
  std::string scalar;
  RegionPlace gate;
};

struct ReleaseCapture {
  uint64_t communicator_id = 0;
  uint64_t sequence = 0;
};

void EncodeFields(const RegisterDevice& m, WireWriter* w);
void EncodeFields(const CaptureCall& m, WireWriter* w);
void EncodeFields(const ReleaseCapture& m, WireWriter* w);

// False if the bytes are no such message.
bool DecodeFields(std::string_view data, DeviceRegistered* m);

}  // namespace shunt::client
