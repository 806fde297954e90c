#include "client/src/lease_messages.h"

#include "absl/status/status.h"
#include "client/src/wire.h"

namespace shunt::client {
namespace {

// Field numbers of LeaseRequest's oneof.
enum RequestField : uint32_t {
  kOpenSession = 3,
  kAllocateRegion = 4,
  kFreeRegion = 5,
  kMapRegion = 6,
  kJoin = 7,
  kLeave = 8,
  kWatchOperation = 9,
  kCloseSession = 10,
  kRegisterAgent = 11,
  kPublishSection = 12,
  kWithdrawSection = 13,
  kFetchSection = 14,
  kPrepareList = 15,
  kReleaseList = 16,
  kWaitTransfer = 17,
  kCancelTransfer = 18,
  kWatchTransfer = 19,
  kNotify = 20,
  kTakeNotifications = 21,
  kWatchNotifications = 22,
  kExplainTransfer = 23,
  kOpenFile = 24,
  kCreateFile = 25,
  kOpenObject = 26,
  kCreateObject = 27,
  kCommitDraft = 28,
  kAbortDraft = 29,
  kSyncFile = 30,
  kRegisterDevice = 31,
  kCaptureCall = 32,
  kReleaseCapture = 33,
};

struct RequestEncoder {
  std::string body;
  uint32_t field = 0;

  void operator()(const OpenSession& m) {
    field = kOpenSession;
    WireWriter w(&body);
    w.Bytes(1, m.name);
    w.Bytes(2, m.client_version);
    w.Varint(3, m.ring_entries);
  }
  void operator()(const AllocateRegion& m) {
    field = kAllocateRegion;
    WireWriter(&body).Varint(2, m.size_bytes);
  }
  void operator()(const FreeRegion& m) {
    field = kFreeRegion;
    WireWriter(&body).Varint(2, m.region_id);
  }
  void operator()(const MapRegion& m) {
    field = kMapRegion;
    WireWriter(&body).Varint(1, m.region_id);
  }
  void operator()(const Join& m) {
    field = kJoin;
    WireWriter w(&body);
    w.Bytes(2, m.name);
    w.Bytes(3, m.job);
    w.Int(4, m.rank);
    w.Int(5, m.world_size);
    w.Varint(6, m.timeout_ms);
    w.Bytes(7, m.algorithm);
    w.Varint(8, m.deterministic ? 1 : 0);
    w.Varint(9, m.device ? 1 : 0);
  }
  void operator()(const Leave& m) {
    field = kLeave;
    WireWriter(&body).Varint(2, m.communicator_id);
  }
  void operator()(const WatchOperation& m) {
    field = kWatchOperation;
    WireWriter w(&body);
    w.Varint(1, m.communicator_id);
    w.Varint(2, m.channel);
    w.Varint(3, m.sequence);
  }
  void operator()(const CloseSession&) { field = kCloseSession; }
  void operator()(const RegisterAgent& m) { Fields(kRegisterAgent, m); }
  void operator()(const PublishSection& m) { Fields(kPublishSection, m); }
  void operator()(const WithdrawSection& m) { Fields(kWithdrawSection, m); }
  void operator()(const FetchSection& m) { Fields(kFetchSection, m); }
  void operator()(const PrepareList& m) { Fields(kPrepareList, m); }
  void operator()(const ReleaseList& m) { Fields(kReleaseList, m); }
  void operator()(const WaitTransfer& m) { Fields(kWaitTransfer, m); }
  void operator()(const CancelTransfer& m) { Fields(kCancelTransfer, m); }
  void operator()(const WatchTransfer& m) { Fields(kWatchTransfer, m); }
  void operator()(const Notify& m) { Fields(kNotify, m); }
  void operator()(const TakeNotifications& m) { Fields(kTakeNotifications, m); }
  void operator()(const WatchNotifications& m) { Fields(kWatchNotifications, m); }
  void operator()(const ExplainTransfer& m) { Fields(kExplainTransfer, m); }
  void operator()(const OpenFile& m) { Fields(kOpenFile, m); }
  void operator()(const CreateFile& m) { Fields(kCreateFile, m); }
  void operator()(const OpenObject& m) { Fields(kOpenObject, m); }
  void operator()(const CreateObject& m) { Fields(kCreateObject, m); }
  void operator()(const CommitDraft& m) { Fields(kCommitDraft, m); }
  void operator()(const AbortDraft& m) { Fields(kAbortDraft, m); }
  void operator()(const SyncFile& m) { Fields(kSyncFile, m); }
  void operator()(const RegisterDevice& m) { Fields(kRegisterDevice, m); }
  void operator()(const CaptureCall& m) { Fields(kCaptureCall, m); }
  void operator()(const ReleaseCapture& m) { Fields(kReleaseCapture, m); }

  template <typename Message>
  void Fields(RequestField request, const Message& m) {
    field = request;
    WireWriter w(&body);
    EncodeFields(m, &w);
  }
};

bool Decode(std::string_view data, SessionOpened* m) {
  WireReader r(data);
  while (r.Next()) {
    if (r.field() == 1) m->session_id = r.varint();
    if (r.field() == 4) m->incarnation = r.varint();
    if (r.field() == 5) m->ring_entries = static_cast<uint32_t>(r.varint());
    if (r.field() == 6) m->memory_quota_bytes = r.varint();
  }
  return r.ok();
}

bool Decode(std::string_view data, RegionAllocated* m) {
  WireReader r(data);
  while (r.Next()) {
    if (r.field() == 1) m->region_id = r.varint();
    if (r.field() == 2) m->size_bytes = r.varint();
  }
  return r.ok();
}

bool Decode(std::string_view data, RegionMapped* m) {
  WireReader r(data);
  while (r.Next()) {
    if (r.field() == 1) m->size_bytes = r.varint();
  }
  return r.ok();
}

bool Decode(std::string_view data, JoinedMember* m) {
  WireReader r(data);
  while (r.Next()) {
    if (r.field() == 1) m->rank = static_cast<int32_t>(r.varint());
    if (r.field() == 2) m->pid = static_cast<int32_t>(r.varint());
    if (r.field() == 3) m->session_id = r.varint();
  }
  return r.ok();
}

bool Decode(std::string_view data, Joined* m) {
  WireReader r(data);
  while (r.Next()) {
    if (r.field() == 1) m->communicator_id = r.varint();
    if (r.field() == 2) m->epoch = r.varint();
    if (r.field() == 3 && !Decode(r.bytes(), &m->members.emplace_back())) return false;
    if (r.field() == 4) m->warm = r.varint() != 0;
  }
  return r.ok();
}

template <typename T>
bool DecodeFieldsInto(std::string_view data, LeaseReply* reply) {
  return DecodeFields(data, &reply->response.emplace<T>());
}

template <typename T>
bool DecodeInto(std::string_view data, LeaseReply* reply) {
  return Decode(data, &reply->response.emplace<T>());
}

}  // namespace

std::string Encode(uint64_t id, const LeaseRequest& request) {
  RequestEncoder encoder;
  std::visit(encoder, request);
  std::string packet;
  WireWriter w(&packet);
  w.Varint(1, id);
  w.Nested(encoder.field, encoder.body);
  return packet;
}

absl::StatusOr<LeaseReply> DecodeLeaseReply(std::string_view packet) {
  LeaseReply reply;
  WireReader r(packet);
  bool ok = true;
  while (ok && r.Next()) {
    switch (r.field()) {
      case 1:
        reply.id = r.varint();
        break;
      case 2:
        reply.code = static_cast<int32_t>(r.varint());
        break;
      case 3:
        reply.message = r.bytes();
        break;
      case 4:
        ok = DecodeInto<SessionOpened>(r.bytes(), &reply);
        break;
      case 5:
        ok = DecodeInto<RegionAllocated>(r.bytes(), &reply);
        break;
      case 6:
        ok = DecodeInto<RegionMapped>(r.bytes(), &reply);
        break;
      case 7:
        ok = DecodeInto<Joined>(r.bytes(), &reply);
        break;
      case 8:
        ok = DecodeFieldsInto<AgentRegistered>(r.bytes(), &reply);
        break;
      case 9:
        ok = DecodeFieldsInto<SectionPublished>(r.bytes(), &reply);
        break;
      case 10:
        ok = DecodeFieldsInto<SectionFetched>(r.bytes(), &reply);
        break;
      case 11:
        ok = DecodeFieldsInto<ListPrepared>(r.bytes(), &reply);
        break;
      case 12:
        ok = DecodeFieldsInto<TransferReport>(r.bytes(), &reply);
        break;
      case 13:
        ok = DecodeFieldsInto<NotificationsTaken>(r.bytes(), &reply);
        break;
      case 14:
        ok = DecodeFieldsInto<TransferExplained>(r.bytes(), &reply);
        break;
      case 15:
        ok = DecodeFieldsInto<FileOpened>(r.bytes(), &reply);
        break;
      case 16:
        ok = DecodeFieldsInto<FileCreated>(r.bytes(), &reply);
        break;
      case 17:
        ok = DecodeFieldsInto<DeviceRegistered>(r.bytes(), &reply);
        break;
      default:
        break;  // a newer daemon's field
    }
  }
  if (!ok || !r.ok()) {
    return absl::InternalError(
        "shuntd sent a reply that is no LeaseReply: " + std::to_string(packet.size()) + " bytes");
  }
  return reply;
}

}  // namespace shunt::client
