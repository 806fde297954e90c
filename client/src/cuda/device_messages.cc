#include "client/src/cuda/device_messages.h"

namespace shunt::client {
namespace {

void Place(uint32_t field, const RegionPlace& place, WireWriter* w) {
  if (place.region_id == 0) return;
  std::string body;
  WireWriter inner(&body);
  inner.Varint(1, place.region_id);
  inner.Varint(2, place.offset_bytes);
  w->Nested(field, body);
}

}  // namespace

void EncodeFields(const RegisterDevice& m, WireWriter* w) {
  w->Bytes(1, m.device_uuid);
  w->Varint(2, m.size_bytes);
  w->Bytes(3, m.ipc_handle);
}

void EncodeFields(const CaptureCall& m, WireWriter* w) {
  w->Varint(1, m.communicator_id);
  w->Varint(2, m.sequence);
  w->Int(3, m.kind);
  w->Int(4, m.data_type);
  w->Int(5, m.reduce_op);
  w->Varint(6, m.count);
  w->Int(7, m.root);
  Place(8, m.input, w);
  Place(9, m.output, w);
  w->Bytes(10, m.scalar);
  Place(11, m.gate, w);
}

void EncodeFields(const ReleaseCapture& m, WireWriter* w) {
  w->Varint(1, m.communicator_id);
  w->Varint(2, m.sequence);
}

bool DecodeFields(std::string_view data, DeviceRegistered* m) {
  WireReader r(data);
  while (r.Next()) {
    if (r.field() == 1) m->region_id = r.varint();
  }
  return r.ok();
}

}  // namespace shunt::client
