#include "client/src/transfer_messages.h"

namespace shunt::client {
namespace {

void EncodeSets(const std::vector<StridedSet>& sets, uint32_t field, WireWriter* w) {
  std::string set;
  std::string dimension;
  for (const StridedSet& s : sets) {
    set.clear();
    WireWriter inner(&set);
    inner.Varint(1, s.region_id);
    inner.Varint(2, s.offset_bytes);
    inner.Varint(3, s.length_bytes);
    for (const Dimension& d : s.dimensions) {
      dimension.clear();
      WireWriter innermost(&dimension);
      innermost.Varint(1, d.count);
      innermost.Int(2, d.stride_bytes);
      inner.Nested(4, dimension);
    }
    w->Nested(field, set);
  }
}

std::string EncodeRuns(const std::vector<ring::PostedRun>& runs) {
  std::string out;
  std::string run;
  for (const ring::PostedRun& r : runs) {
    run.clear();
    WireWriter w(&run);
    w.Varint(1, r.first);
    w.Varint(2, r.count);
    w.Varint(3, r.step);
    WireWriter(&out).Nested(1, run);
  }
  return out;
}

std::string EncodeIds(const SelectedPieces& m) {
  std::string out;
  WireWriter w(&out);
  w.Packed(1, m.ids);
  w.Varint(2, m.unit);
  w.Varint(3, m.repeats);
  w.Varint(4, m.repeat_step);
  return out;
}

std::string EncodeRaw(const std::vector<ring::PostedPiece>& pieces) {
  std::string out;
  std::string piece;
  for (const ring::PostedPiece& p : pieces) {
    piece.clear();
    WireWriter w(&piece);
    w.Varint(1, p.region);
    w.Varint(2, p.offset);
    w.Varint(3, p.length);
    WireWriter(&out).Nested(1, piece);
  }
  return out;
}

std::string EncodeSelection(const SelectedPieces& m) {
  std::string out;
  WireWriter w(&out);
  w.Varint(1, m.list_id);
  switch (m.form) {
    case ring::PostedForm::kAll:
      w.Varint(2, 1);
      break;
    case ring::PostedForm::kRuns:
      w.Nested(3, EncodeRuns(m.runs));
      break;
    case ring::PostedForm::kIds32:
    case ring::PostedForm::kIds64:
      w.Nested(4, EncodeIds(m));
      break;
    case ring::PostedForm::kRaw:
      w.Nested(5, EncodeRaw(m.raw));
      break;
  }
  return out;
}

bool DecodeInfo(std::string_view data, ListInfo* m) {
  WireReader r(data);
  while (r.Next()) {
    if (r.field() == 1) m->list_id = r.varint();
    if (r.field() == 2) m->pieces = r.varint();
    if (r.field() == 3) m->piece_bytes = r.varint();
    if (r.field() == 4) m->bytes = r.varint();
  }
  return r.ok();
}

bool DecodeNotification(std::string_view data, Notification* m) {
  WireReader r(data);
  while (r.Next()) {
    if (r.field() == 1) m->from = r.bytes();
    if (r.field() == 2) m->payload = r.bytes();
  }
  return r.ok();
}

}  // namespace

void EncodeFields(const RegisterAgent& m, WireWriter* w) { w->Bytes(2, m.name); }

void EncodeFields(const PublishSection& m, WireWriter* w) {
  w->Bytes(2, m.name);
  EncodeSets(m.sets, 3, w);
  w->Int(4, m.access);
  w->Packed(5, m.tenants);
}

void EncodeFields(const WithdrawSection& m, WireWriter* w) { w->Bytes(2, m.name); }

void EncodeFields(const FetchSection& m, WireWriter* w) {
  w->Bytes(2, m.agent);
  w->Bytes(3, m.section);
  w->Int(4, m.access);
}

void EncodeFields(const PrepareList& m, WireWriter* w) { EncodeSets(m.sets, 2, w); }
void EncodeFields(const ReleaseList& m, WireWriter* w) { w->Varint(2, m.list_id); }
void EncodeFields(const WaitTransfer& m, WireWriter* w) { w->Varint(2, m.transfer_id); }
void EncodeFields(const CancelTransfer& m, WireWriter* w) { w->Varint(2, m.transfer_id); }
void EncodeFields(const WatchTransfer& m, WireWriter* w) { w->Varint(1, m.transfer_id); }

void EncodeFields(const Notify& m, WireWriter* w) {
  w->Bytes(2, m.agent);
  w->Bytes(3, m.payload);
}

void EncodeFields(const TakeNotifications& m, WireWriter* w) {
  w->Varint(2, m.max);
  w->Varint(3, m.wait_ms);
}

void EncodeFields(const WatchNotifications& /*m*/, WireWriter* /*w*/) {}

void EncodeFields(const ExplainTransfer& m, WireWriter* w) {
  w->Varint(2, m.direction);
  w->Varint(3, m.transfer_class);
  w->Nested(4, EncodeSelection(m.local));
  w->Nested(5, EncodeSelection(m.remote));
}

bool DecodeFields(std::string_view data, AgentRegistered* m) {
  WireReader r(data);
  while (r.Next()) {
    if (r.field() == 1) m->incarnation = r.fixed64();
  }
  return r.ok();
}

bool DecodeFields(std::string_view data, SectionPublished* m) {
  WireReader r(data);
  while (r.Next()) {
    if (r.field() == 1 && !DecodeInfo(r.bytes(), &m->list)) return false;
    if (r.field() == 2) m->version = r.varint();
  }
  return r.ok();
}

bool DecodeFields(std::string_view data, SectionFetched* m) {
  WireReader r(data);
  while (r.Next()) {
    if (r.field() == 1 && !DecodeInfo(r.bytes(), &m->list)) return false;
    if (r.field() == 2) m->incarnation = r.fixed64();
    if (r.field() == 3) m->version = r.varint();
    if (r.field() == 4) m->node = r.bytes();
  }
  return r.ok();
}

bool DecodeFields(std::string_view data, ListPrepared* m) {
  WireReader r(data);
  while (r.Next()) {
    if (r.field() == 1 && !DecodeInfo(r.bytes(), &m->list)) return false;
  }
  return r.ok();
}

bool DecodeFields(std::string_view data, TransferReport* m) {
  WireReader r(data);
  while (r.Next()) {
    if (r.field() == 1) m->bytes = r.varint();
    if (r.field() == 2) m->route = r.bytes();
    if (r.field() == 3) m->waited_ns = r.varint();
    if (r.field() == 4) m->moved_ns = r.varint();
  }
  return r.ok();
}

bool DecodeFields(std::string_view data, NotificationsTaken* m) {
  WireReader r(data);
  while (r.Next()) {
    if (r.field() == 1 && !DecodeNotification(r.bytes(), &m->notifications.emplace_back())) {
      return false;
    }
    if (r.field() == 2) m->more = r.varint() != 0;
  }
  return r.ok();
}

bool DecodeFields(std::string_view data, TransferExplained* m) {
  WireReader r(data);
  while (r.Next()) {
    if (r.field() == 1) m->bytes = r.varint();
    if (r.field() == 2) m->route = r.bytes();
    if (r.field() == 3) m->copy_runs = r.varint();
    if (r.field() == 4) m->predicted_ns = r.varint();
    if (r.field() == 5) m->bytes_ahead = r.varint();
  }
  return r.ok();
}

}  // namespace shunt::client
