#include "client/src/file_messages.h"

namespace shunt::client {
namespace {

void EncodePlace(const ObjectPlace& m, WireWriter* w) {
  w->Bytes(2, m.endpoint);
  w->Bytes(3, m.bucket);
  w->Bytes(4, m.key);
  std::string credentials;
  WireWriter inner(&credentials);
  inner.Bytes(1, m.access_key_id);
  inner.Bytes(2, m.secret_access_key);
  inner.Bytes(3, m.session_token);
  w->Bytes(5, credentials);
}

}  // namespace

void EncodeFields(const OpenFile& m, WireWriter* w) {
  w->Bytes(2, m.root);
  w->Bytes(3, m.path);
  w->Varint(4, m.writable ? 1 : 0);
  w->Varint(5, m.timeout_ms);
}

void EncodeFields(const CreateFile& m, WireWriter* w) {
  w->Bytes(2, m.root);
  w->Bytes(3, m.path);
  w->Varint(4, m.size_bytes);
  w->Varint(5, m.if_absent ? 1 : 0);
  w->Varint(6, m.timeout_ms);
}

void EncodeFields(const OpenObject& m, WireWriter* w) {
  EncodePlace(m.place, w);
  w->Varint(6, m.timeout_ms);
}

void EncodeFields(const CreateObject& m, WireWriter* w) {
  EncodePlace(m.place, w);
  w->Varint(6, m.size_bytes);
  w->Varint(7, m.if_absent ? 1 : 0);
  w->Varint(8, m.timeout_ms);
}

void EncodeFields(const CommitDraft& m, WireWriter* w) {
  w->Varint(2, m.region_id);
  w->Varint(3, m.timeout_ms);
}

void EncodeFields(const AbortDraft& m, WireWriter* w) { w->Varint(2, m.region_id); }

void EncodeFields(const SyncFile& m, WireWriter* w) {
  w->Varint(2, m.region_id);
  w->Varint(3, m.timeout_ms);
}

bool DecodeFields(std::string_view data, FileOpened* m) {
  WireReader r(data);
  while (r.Next()) {
    if (r.field() == 1) m->region_id = r.varint();
    if (r.field() == 2) m->size_bytes = r.varint();
  }
  return r.ok();
}

bool DecodeFields(std::string_view data, FileCreated* m) {
  WireReader r(data);
  while (r.Next()) {
    if (r.field() == 1) m->region_id = r.varint();
  }
  return r.ok();
}

}  // namespace shunt::client
